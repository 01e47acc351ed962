# cmake -DOUTPUT=page_files.cc -DFILES="a;b" -P embed.cmake: writes the C++ source of PageFiles()
# (router/doors/ui/page_files.h) with the bytes of FILES in the order given.
set(arrays "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(REGEX REPLACE "\n" "\"\n    \"" bytes "${bytes}")
  # A literal ends with a zero, which the length leaves out.
  string(APPEND arrays "constexpr char kFile${index}[] =\n    \"${bytes}\";\n")
  string(APPEND entries "    {\"${name}\", {kFile${index}, sizeof(kFile${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"router/doors/ui/page_files.h\"\n
namespace weft::router {
namespace {\n
${arrays}
constexpr PageFile kFiles[] = {
${entries}};\n
}  // namespace\n
absl::Span<const PageFile> PageFiles() { return kFiles; }\n
}  // namespace weft::router
")
