# SPDX-License-Identifier: GPL-3.0-or-later
# The one place for compiler settings, and the three functions that every folder uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

find_program(RANKYARD_CCACHE ccache)
if(RANKYARD_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${RANKYARD_CCACHE}")
endif()
find_program(RANKYARD_MOLD mold)
if(RANKYARD_MOLD)
    add_link_options(-fuse-ld=mold)
endif()
if(RANKYARD_SANITIZE)
    add_compile_options(-fsanitize=${RANKYARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${RANKYARD_SANITIZE})
endif()
find_package(Threads REQUIRED)

# Flags of our own code only, never of headers that we include.
add_library(rankyard_flags INTERFACE)
target_include_directories(rankyard_flags INTERFACE "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/generated")
target_compile_options(rankyard_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-restrict # GCC 12 sees overlaps in std::string that are not there (its bug 105651)
    $<$<BOOL:${RANKYARD_WERROR}>:-Werror>)
target_link_libraries(rankyard_flags INTERFACE Threads::Threads)

# The heap of programs that plan: a program of 10^5 ops is 10^6 small vectors, made and dropped pass by pass. Sanitizers bring their own;
# the worker, whose memory is measured, keeps the system's.
add_library(rankyard_heap INTERFACE)
find_package(mimalloc 2 QUIET)
if(mimalloc_FOUND AND NOT RANKYARD_SANITIZE)
    target_link_libraries(rankyard_heap INTERFACE mimalloc)
endif()

# rankyard_library(NAME SOURCES a.cpp … [PUBLIC lib …] [PRIVATE lib …]): static library rankyard_NAME.
# Without SOURCES it is a library of headers.
function(rankyard_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
    if(arg_SOURCES)
        add_library(rankyard_${name} STATIC ${arg_SOURCES})
        target_link_libraries(rankyard_${name} PUBLIC rankyard_flags ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
    else()
        add_library(rankyard_${name} INTERFACE)
        target_link_libraries(rankyard_${name} INTERFACE rankyard_flags ${arg_PUBLIC})
    endif()
endfunction()

# rankyard_program(NAME SOURCES a.cpp … LIBS lib …): an executable in bin/.
function(rankyard_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE rankyard_flags ${arg_LIBS})
endfunction()

# rankyard_test(NAME SOURCES a.cpp … LIBS lib … [LABELS …] [TIMEOUT s] [QT]): one test binary for a folder, GoogleTest
# unless QT says Qt Test. It runs with RANKYARD_SOURCE_DIR and RANKYARD_BIN_DIR in its environment.
function(rankyard_test name)
    cmake_parse_arguments(arg "QT" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
    add_executable(test_${name} ${arg_SOURCES})
    target_link_libraries(test_${name} PRIVATE rankyard_flags ${arg_LIBS})
    if(NOT arg_QT)
        find_package(GTest REQUIRED)
        target_link_libraries(test_${name} PRIVATE GTest::gtest GTest::gtest_main GTest::gmock)
    endif()
    add_test(NAME ${name} COMMAND test_${name})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT
        "RANKYARD_SOURCE_DIR=${CMAKE_SOURCE_DIR};RANKYARD_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};QT_QPA_PLATFORM=offscreen")
endfunction()
