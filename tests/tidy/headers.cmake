# weft_check_headers: compiles every header alone, so that each includes what it uses.
function(weft_check_headers)
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/common/*.h ${PROJECT_SOURCE_DIR}/router/*.h
    ${PROJECT_SOURCE_DIR}/shard/*.h ${PROJECT_SOURCE_DIR}/kernels/*.h
    ${PROJECT_SOURCE_DIR}/deploy/*.h)
  # *.inc.h are parts of a source file, compiled once per instruction set.
  list(FILTER headers EXCLUDE REGEX "ffi/|[.]inc[.]h$")
  if(NOT WEFT_HAVE_CUDA)
    list(FILTER headers EXCLUDE REGEX "^(kernels|shard/device)/cuda/|^shard/comm/(nccl|peer)_")
  endif()
  set(sources)
  foreach(header IN LISTS headers)
    string(REPLACE "/" "_" name ${header})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(weft_header_check OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(weft_header_check PRIVATE weft_common weft_flags weft_metrics
    weft_proto_grpc Boost::boost)
  if(WEFT_HAVE_CUDA)
    target_link_libraries(weft_header_check PRIVATE CUDA::cudart_static CUDA::cublasLt)
  endif()
endfunction()
