// jit-attention: the library from the command line.
#include "run_tool.h"

int main(int argc, char** argv) { return jit::tool::run_tool(argc, argv); }
