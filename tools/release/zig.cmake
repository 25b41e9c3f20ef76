# Compiles for an old glibc and for another architecture with clang and the libraries of the wheel `ziglang`: wheels.py
# gives JIT_ZIG_BIN, a folder of programs that call it, and JIT_ZIG_TARGET, such as aarch64-linux-gnu.2.28.
set(CMAKE_SYSTEM_NAME Linux)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR $ENV{JIT_ZIG_TARGET})
set(CMAKE_CXX_COMPILER $ENV{JIT_ZIG_BIN}/c++)
set(CMAKE_CXX_COMPILER_TARGET $ENV{JIT_ZIG_TARGET})
set(CMAKE_AR $ENV{JIT_ZIG_BIN}/ar)
set(CMAKE_RANLIB $ENV{JIT_ZIG_BIN}/ranlib)
# The system's headers and libraries are of another machine.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
