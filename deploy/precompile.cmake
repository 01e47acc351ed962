# Precompiled headers, for builds that are made again and again: what most sources include, compiled
# once. They save time and nothing else. Sources still include what they use: presets without them
# (release, asan) do not compile otherwise.

# For whatever uses a precompiled header or owns one. The compiler cache knows them when it is told
# not to mind __TIME__, and what GCC reads of them when GCC says so (ccache's manual, "Precompiled
# headers"). One that was compiled with -pthread serves only what is. GCC 12 warns wrongly of
# std::string's own code (its bug 105329) and, in a precompiled header, does not see that it is the
# library's.
function(weft_compile_as_precompiled target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-pthread;-fpch-preprocess;-Wno-array-bounds;-Wno-restrict>"
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow;-Wno-stringop-overread>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-pthread;SHELL:-Xclang -fno-pch-timestamp>")
  if(WEFT_CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${WEFT_CCACHE}")
  endif()
endfunction()

# All static libraries below `folder`, but for generated code and kernels, whose sources have flags
# of their own.
function(weft_use_precompiled folder owner)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "STATIC_LIBRARY" AND NOT target MATCHES "^weft_(proto|kernels|precompiled$)")
      weft_compile_as_precompiled(${target})
      target_precompile_headers(${target} REUSE_FROM ${owner})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    weft_use_precompiled(${below} ${owner})
  endforeach()
endfunction()

# Called when all libraries are known; common/ has the header.
function(weft_precompile)
  foreach(folder IN ITEMS common router shard deploy tests)
    weft_use_precompiled(${PROJECT_SOURCE_DIR}/${folder} weft_precompiled)
  endforeach()
endfunction()
