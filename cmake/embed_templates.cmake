# Writes a C++ file with the text of all templates, compressed, and what each is called and has of it. The anchors of the
# tests' mutations are left out: lines stay where they are. Called with NAMES, PATHS (one for each name) and OUTPUT.
set(all "")
set(files "")
foreach(name path IN ZIP_LISTS NAMES PATHS)
  file(READ ${path} content)
  string(REGEX REPLACE " *// mutate: [A-Za-z0-9]+" "" content "${content}")
  string(LENGTH "${content}" length)  # in bytes
  string(APPEND all "${content}")
  string(APPEND files "    {\"${name}\", ${length}},\n")
endforeach()
file(WRITE ${OUTPUT}.txt "${all}")
file(ARCHIVE_CREATE OUTPUT ${OUTPUT}.gz PATHS ${OUTPUT}.txt FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)

# The stream lies between a header of 10 bytes, which holds the time, and a checksum with the size.
file(READ ${OUTPUT}.gz hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR digits "${digits} - 36")
if(NOT hex MATCHES "^1f8b0800")
  message(FATAL_ERROR "the header of ${OUTPUT}.gz has more than 10 bytes")
endif()
string(SUBSTRING "${hex}" 20 ${digits} hex)
string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${hex}")
math(EXPR count "${digits} / 2")

# Compilers limit the length of one literal; neighboring ones are joined.
string(LENGTH "${bytes}" length)
set(literals "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${bytes}" ${at} 8000 piece)
  string(APPEND literals "    \"${piece}\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT} "// Generated from templates/.
#include \"generator/program/embedded_text.h\"

namespace jit {

EmbeddedText embedded_text() {
  static constexpr EmbeddedFile files[] = {
${files}  };
  static constexpr std::string_view stream(
${literals}    , ${count});
  return {files, stream};
}

}  // namespace jit
")
file(REMOVE ${OUTPUT}.txt ${OUTPUT}.gz)
