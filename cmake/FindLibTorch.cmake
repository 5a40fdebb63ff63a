# SPDX-License-Identifier: GPL-3.0-or-later
# find_package(LibTorch): the CPU half of LibTorch, without its own CMake package, which insists on a CUDA toolkit.
#
#   LibTorch::ATen   headers of ATen and c10, libtorch_cpu, libc10
#   LibTorch::C10d   the same with c10d and ProcessGroupGloo (needs Gloo's headers: libgloo-dev)
#   LibTorch_DIR_USED, LibTorch_VERSION
#
# Searched: -DRANKYARD_LIBTORCH=DIR (a folder with include/ and lib/), else where packaging/libtorch puts it.

set(_libtorch_version 2.11.0)
set(_libtorch_dir "${RANKYARD_LIBTORCH}")
if(NOT _libtorch_dir)
    if(DEFINED ENV{RANKYARD_CACHE})
        set(_libtorch_cache "$ENV{RANKYARD_CACHE}")
    elseif(DEFINED ENV{XDG_CACHE_HOME})
        set(_libtorch_cache "$ENV{XDG_CACHE_HOME}/rankyard")
    else()
        set(_libtorch_cache "$ENV{HOME}/.cache/rankyard")
    endif()
    set(_libtorch_dir "${_libtorch_cache}/libtorch-${_libtorch_version}-cpu")
endif()

set(_libtorch_missing "")
foreach(_file include/ATen/ATen.h include/torch/headeronly/version.h lib/libtorch_cpu.so lib/libc10.so)
    if(NOT EXISTS "${_libtorch_dir}/${_file}")
        list(APPEND _libtorch_missing "${_file}")
    endif()
endforeach()
find_path(LibTorch_GLOO_INCLUDE_DIR gloo/context.h)
mark_as_advanced(LibTorch_GLOO_INCLUDE_DIR)

set(LibTorch_FOUND FALSE)
if(_libtorch_missing)
    list(JOIN _libtorch_missing ", " _libtorch_missing)
    set(_libtorch_why "LibTorch is not in ${_libtorch_dir} (no ${_libtorch_missing}).\n"
        "  packaging/libtorch                 fetches the one that Rankyard is tested with\n"
        "  -DRANKYARD_LIBTORCH=DIR            names another: DIR/include and DIR/lib\n"
        "  -DRANKYARD_WITH_TORCH=OFF          builds without kernels and worker")
elseif(NOT LibTorch_GLOO_INCLUDE_DIR)
    set(_libtorch_why "Gloo's headers are missing (gloo/context.h).\n  apt-get install libgloo-dev")
else()
    set(LibTorch_FOUND TRUE)
endif()

if(NOT LibTorch_FOUND)
    string(CONCAT _libtorch_why ${_libtorch_why})
    if(LibTorch_FIND_REQUIRED)
        message(FATAL_ERROR "${_libtorch_why}")
    elseif(NOT LibTorch_FIND_QUIETLY)
        message(STATUS "${_libtorch_why}")
    endif()
    return()
endif()

set(LibTorch_VERSION "")
foreach(_part MAJOR MINOR PATCH)
    file(STRINGS "${_libtorch_dir}/include/torch/headeronly/version.h" _line REGEX "define TORCH_VERSION_${_part} ")
    string(REGEX MATCH "[0-9]+$" _line "${_line}")
    list(APPEND LibTorch_VERSION "${_line}")
endforeach()
list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
if(NOT LibTorch_VERSION VERSION_EQUAL _libtorch_version)
    message(WARNING "LibTorch ${LibTorch_VERSION} in ${_libtorch_dir}: Rankyard is tested with ${_libtorch_version}.")
endif()
set(LibTorch_DIR_USED "${_libtorch_dir}")

if(NOT TARGET LibTorch::ATen)
    # The libraries that libtorch_cpu needs lie beside it and are found by its own run path; a linker that wants to see
    # them at link time is told where they are. The programs get their run path from IMPORTED_LOCATION.
    add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${_libtorch_dir}/lib/libc10.so"
        IMPORTED_NO_SONAME FALSE INTERFACE_INCLUDE_DIRECTORIES "${_libtorch_dir}/include"
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_libtorch_dir}/include"
        INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1")

    add_library(LibTorch::ATen SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::ATen PROPERTIES IMPORTED_LOCATION "${_libtorch_dir}/lib/libtorch_cpu.so"
        INTERFACE_LINK_LIBRARIES LibTorch::c10
        INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_libtorch_dir}/lib")

    add_library(LibTorch::C10d INTERFACE IMPORTED GLOBAL)
    target_link_libraries(LibTorch::C10d INTERFACE LibTorch::ATen)
    target_compile_definitions(LibTorch::C10d INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
    target_include_directories(LibTorch::C10d SYSTEM INTERFACE "${_libtorch_dir}/include/torch/csrc/api/include")
    if(NOT LibTorch_GLOO_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
        target_include_directories(LibTorch::C10d SYSTEM INTERFACE "${LibTorch_GLOO_INCLUDE_DIR}")
    endif()
endif()
