# Included by the top-level CMakeLists.txt: sets WEFT_HAVE_CUDA by WEFT_CUDA (ON, OFF, AUTO) and
# what is found, and with it enables CUDA and makes NCCL::nccl. AUTO does without CUDA where
# something is missing and says what; ON fails there.

string(TOUPPER "${WEFT_CUDA}" weft_cuda)
if(weft_cuda MATCHES "^(ON|YES|TRUE|Y|1)$")
  set(weft_cuda ON)
elseif(weft_cuda MATCHES "^(OFF|NO|FALSE|N|0)$")
  set(weft_cuda OFF)
elseif(NOT weft_cuda STREQUAL "AUTO")
  message(FATAL_ERROR "WEFT_CUDA is \"${WEFT_CUDA}\"; it may be ON, OFF or AUTO")
endif()

# Stays empty where all is found.
set(weft_no_cuda "")
set(weft_cuda_help "deploy/setup.sh --cuda, then source deploy/env.sh and configure again")

if(weft_cuda STREQUAL "OFF")
  set(weft_no_cuda "WEFT_CUDA=${WEFT_CUDA}")
elseif(WEFT_SANITIZE)
  set(weft_no_cuda "WEFT_SANITIZE=${WEFT_SANITIZE}: CUDA code is not built with sanitizers")
else()
  include(CheckLanguage)
  # One architecture, with its own instructions (wgmma), and no intermediate code.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  # An earlier configure may have kept that there was none.
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit)
    # Another compiler is taken by an empty cache alone.
    if(NOT CUDAToolkit_FOUND)
      set(weft_no_cuda "${CMAKE_CUDA_COMPILER} without its libraries: ${weft_cuda_help}, --fresh")
    elseif(CUDAToolkit_VERSION VERSION_LESS 13.0)
      set(weft_no_cuda "CUDA ${CUDAToolkit_VERSION} is older than 13.0: ${weft_cuda_help}, --fresh")
    endif()
  elseif(DEFINED ENV{CUDACXX})
    set(weft_no_cuda "CUDACXX=$ENV{CUDACXX} does not compile: ${weft_cuda_help}")
  else()
    set(weft_no_cuda "no CUDA compiler: ${weft_cuda_help}, or set CUDACXX")
  endif()
endif()

# NCCL 2.28, whose device API is not that of later ones: where WEFT_NCCL says, beside CUDA, or the
# system's. A find of another version is searched anew.
if(NOT weft_no_cuda)
  find_path(NCCL_INCLUDE_DIR nccl_device.h
    HINTS ENV WEFT_NCCL ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
    HINTS ENV WEFT_NCCL ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib)
  set(nccl_lines "")
  if(NCCL_LIBRARY AND EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "^#define NCCL_(MAJOR 2|MINOR 28)$")
  endif()
  list(LENGTH nccl_lines nccl_matches)
  if(NOT nccl_matches EQUAL 2)
    unset(NCCL_INCLUDE_DIR CACHE)
    unset(NCCL_LIBRARY CACHE)
    string(CONCAT weft_no_cuda "no NCCL 2.28 for CUDA ${CUDAToolkit_VERSION}: ${weft_cuda_help}, "
                               "or set WEFT_NCCL to its folder")
    if(weft_cuda STREQUAL "AUTO")
      message(WARNING "${weft_no_cuda}")
    endif()
  endif()
endif()

if(weft_no_cuda)
  if(weft_cuda STREQUAL "ON")
    message(FATAL_ERROR "WEFT_CUDA=ON, but ${weft_no_cuda}")
  endif()
  set(WEFT_HAVE_CUDA OFF)
  message(STATUS "CUDA: OFF (${weft_no_cuda})")
else()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo -DNDEBUG")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${WEFT_CCACHE})
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
  set(WEFT_HAVE_CUDA ON)
  message(STATUS "CUDA: ON (${CUDAToolkit_VERSION}, NCCL of ${NCCL_INCLUDE_DIR})")
endif()
