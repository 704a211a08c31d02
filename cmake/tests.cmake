# Every test, found by glob and registered with CTest. The name is the path below test/ without its
# ending, the label is the folder (unit, ops, golden, ...). All tests get SRC (the source tree),
# BUILD (the build tree) and WEFT (the command) in the environment and run in BUILD/test.
# With a sanitizer, and where the same program runs once more on another device or locale,
# WEFT_TEST_QUICK=1 is set too: a test that tries many cases may try fewer then.
# A test that needs more than the default time says so in a line "ctest-timeout: SECONDS"; it gets
# the label "slow" as well.

set(WEFT_TEST_TIMEOUT 120)
set(WEFT_TEST_SLOWNESS 1)
if(WEFT_SANITIZE)
    set(WEFT_TEST_SLOWNESS 5)
endif()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/test)

function(weft_add_test name label timeout)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/test)
    set(env SRC=${PROJECT_SOURCE_DIR} BUILD=${PROJECT_BINARY_DIR}
            WEFT=${PROJECT_BINARY_DIR}/bin/weft CC=${CMAKE_C_COMPILER})
    if(WEFT_SANITIZE)
        # Libraries below us may race or leak by design; our own findings still fail the test.
        list(APPEND env WEFT_TEST_QUICK=1
                        TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/test/tsan.supp
                        LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/test/lsan.supp)
    endif()
    if(timeout GREATER WEFT_TEST_TIMEOUT)
        list(APPEND label slow)
    endif()
    math(EXPR timeout "${timeout} * ${WEFT_TEST_SLOWNESS}")
    set_tests_properties(${name} PROPERTIES
        LABELS "${label}" TIMEOUT ${timeout} ENVIRONMENT "${env}")
endfunction()

function(weft_timeout file out)
    file(STRINGS ${file} line REGEX "ctest-timeout: *[0-9]+" LIMIT_COUNT 1)
    if(line)
        string(REGEX REPLACE ".*ctest-timeout: *([0-9]+).*" "\\1" line "${line}")
        set(${out} ${line} PARENT_SCOPE)
    else()
        set(${out} ${WEFT_TEST_TIMEOUT} PARENT_SCOPE)
    endif()
endfunction()

# test/support/*.c: helpers shared by the test programs, compiled once.
file(GLOB support CONFIGURE_DEPENDS test/support/*.c)
if(TARGET weft_static)
    add_library(weft_test_support OBJECT ${support})
    if(WEFT_HAVE_CUDA)
        set_source_files_properties(test/support/fake_cuda.c PROPERTIES
            COMPILE_OPTIONS "${WEFT_CUDA_OPTIONS}")
    endif()
    target_include_directories(weft_test_support PRIVATE test)
    target_compile_options(weft_test_support PRIVATE -UNDEBUG)
    target_link_libraries(weft_test_support PRIVATE weft_common weft_static)
endif()

# One program per file; it sees the inside of the library ("base/base.h") and its hidden symbols.
function(weft_test_program file out_name out_target)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/test OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name)
    string(REPLACE "/" "-" target "test-${name}")
    add_executable(${target} ${file} $<TARGET_OBJECTS:weft_test_support>)
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test/bin)
    target_include_directories(${target} PRIVATE test)
    target_compile_options(${target} PRIVATE -UNDEBUG)
    target_compile_definitions(${target} PRIVATE WF_TEST_DIR="${PROJECT_SOURCE_DIR}/test")
    target_link_libraries(${target} PRIVATE weft_common weft_static)
    target_link_options(${target} PRIVATE -Wl,--wrap=weft_ctx_new)
    set(${out_name} ${name} PARENT_SCOPE)
    set(${out_target} ${target} PARENT_SCOPE)
endfunction()

# Programs that may run two at a time on two cores.
set(WEFT_SHARING_TESTS
    "^(unit/(tensor|op|graph|cluster|model|ckpt|data)/|unit/base/([^p]|p[^o])|\
unit/ps/(client|control|events|hostile|leases|lost|many|plan|predict|renew|saves|server|stall|tables)_test|\
unit/kernels/(math|ew|random|cuda_plan)_test|unit/net/(stripe|queues|frame|ring)_test|fault/(ckpt|data|net)_)")
string(REPLACE "\n" "" WEFT_SHARING_TESTS "${WEFT_SHARING_TESTS}")

file(GLOB programs CONFIGURE_DEPENDS
     test/unit/*/*.c test/ops/*.c test/golden/*.c test/fault/*.c)
file(GLOB fuzzers CONFIGURE_DEPENDS test/fuzz/*.c)
list(FILTER fuzzers EXCLUDE REGEX "/replay\\.c$")
set(WEFT_TEST_ONLY "" CACHE STRING "build only the test programs whose path matches this expression")
if(WEFT_TEST_ONLY)
    list(FILTER programs INCLUDE REGEX "${WEFT_TEST_ONLY}")
    list(FILTER fuzzers INCLUDE REGEX "${WEFT_TEST_ONLY}")
endif()
if(NOT TARGET weft_static)
    set(programs "")
    set(fuzzers "")
endif()
if(programs)
    pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
endif()
# test/ops/lib: the harness of the op table test.
file(GLOB harness CONFIGURE_DEPENDS test/ops/lib/*.c)
if(programs AND harness)
    add_library(weft_op_harness OBJECT ${harness})
    target_include_directories(weft_op_harness PRIVATE test)
    target_link_libraries(weft_op_harness PRIVATE weft_common PkgConfig::cmocka)
endif()
foreach(file IN LISTS programs)
    weft_test_program(${file} name target)
    target_link_libraries(${target} PRIVATE PkgConfig::cmocka)
    if(name MATCHES "^ops/")
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:weft_op_harness>)
    endif()
    weft_timeout(${file} timeout)
    cmake_path(GET name PARENT_PATH folders)
    string(REPLACE "/" ";" labels "${folders}")
    weft_add_test(${name} "${labels}" ${timeout} ${target})
    # The same rows once more on the kernels for GPUs, which the host runs (test/support/fake_cuda.c).
    if(WEFT_HAVE_CUDA AND name MATCHES "^ops/")
        weft_add_test(cuda/${name} cuda ${timeout} ${target} --device emulated)
    endif()
    # Spinning threads of two programs on the same cores slow both down many times. Those below have
    # one thread, or threads that sleep while they wait.
    if(NOT name MATCHES "${WEFT_SHARING_TESTS}")
        set_tests_properties(${name} PROPERTIES PROCESSORS 2)
    endif()
endforeach()

# The op table, golden numbers and training run once more on a device with memory of its own, which
# the host cannot touch (test/support/fake.c). Not those whose subject is the CPU's kernels or groups
# of cores: their names of kernels, bits or numbers of allocations.
set(WEFT_DEVICE_TESTS
    "^(ops/|golden/|unit/exec/(autocast|batch_norm|cast|clip_norm|explain|fn|gradcheck|passes|two_updates|updates)_test|\
unit/train/(custom_loss|deal|dist|failed_step|fingerprint|fit|life|lives|loop|map_graph|parts|rates|save|scale|shards|\
states|strategy)_test)")
string(REPLACE "\n" "" WEFT_DEVICE_TESTS "${WEFT_DEVICE_TESTS}")
foreach(file IN LISTS programs)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/test OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name)
    string(REPLACE "/" "-" target "test-${name}")
    if(NOT WEFT_SANITIZE AND name MATCHES "${WEFT_DEVICE_TESTS}")
        weft_timeout(${file} timeout)
        weft_add_test(device/${name} device ${timeout} ${target})
        set_property(TEST device/${name} APPEND PROPERTY ENVIRONMENT
            WEFT_TEST_DEVICE=fake:0 WEFT_TEST_QUICK=1)
        set_tests_properties(device/${name} PROPERTIES PROCESSORS 2)
    endif()
endforeach()

# Tests of text formats run once more in a program that called setlocale for a decimal comma
# (test/support/locale.c); test/support/locales.sh makes the locales, and all are skipped where it cannot.
set(WEFT_TEXT_TESTS
    "^unit/(base/(number|format)|op/|tensor/|graph/text|model/(json|model|layers|loss|metric|summary)_|ckpt/|\
data/(array|csv|feature|libsvm|rows|split|sqlite|text|transform)|train/(events|fit|loop|rates|report|save|states))")
string(REPLACE "\n" "" WEFT_TEXT_TESTS "${WEFT_TEXT_TESTS}")
set(locales ${PROJECT_BINARY_DIR}/test/locales)
weft_add_test(locale/setup locale ${WEFT_TEST_TIMEOUT}
              bash ${PROJECT_SOURCE_DIR}/test/support/locales.sh)
set_tests_properties(locale/setup PROPERTIES FIXTURES_SETUP locales SKIP_RETURN_CODE 77)
foreach(file IN LISTS programs)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/test OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name)
    string(REPLACE "/" "-" target "test-${name}")
    set(chosen ${name})
    if(name MATCHES "${WEFT_TEXT_TESTS}")
        list(APPEND chosen locale/${name})
        weft_timeout(${file} timeout)
        weft_add_test(locale/${name} locale ${timeout} ${target})
        set_property(TEST locale/${name} APPEND PROPERTY ENVIRONMENT
            WEFT_TEST_LOCALE=de_DE.UTF-8 WEFT_TEST_QUICK=1)
        set_tests_properties(locale/${name} PROPERTIES SKIP_RETURN_CODE 77)
        if(NOT name MATCHES "${WEFT_SHARING_TESTS}")
            set_tests_properties(locale/${name} PROPERTIES PROCESSORS 2)
        endif()
    endif()
    if(name MATCHES "^unit/(base/format|train/locale)_test$" OR name MATCHES "${WEFT_TEXT_TESTS}")
        foreach(test IN LISTS chosen)
            set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT LOCPATH=${locales})
            set_property(TEST ${test} APPEND PROPERTY FIXTURES_REQUIRED locales)
        endforeach()
    endif()
endforeach()

# A fuzzer is a file with LLVMFuzzerTestOneInput. The ordinary tests replay its corpus,
# test/fuzz/corpus/NAME/, and try changes of it for a few seconds; with WEFT_FUZZ the same program
# searches for new inputs with libFuzzer, led by coverage.
# Without a sanitizer little is noticed: the search is short.
if(WEFT_SANITIZE)
    set(search 3)
else()
    set(search 1)
endif()
foreach(file IN LISTS fuzzers)
    weft_test_program(${file} name target)
    cmake_path(GET file STEM stem)
    set(corpus ${PROJECT_SOURCE_DIR}/test/fuzz/corpus/${stem})
    if(WEFT_FUZZ)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
        weft_add_test(${name} fuzz 300 ${target} -runs=20000 -max_total_time=60 ${corpus})
    else()
        target_sources(${target} PRIVATE test/fuzz/replay.c)
        weft_add_test(${name} fuzz ${WEFT_TEST_TIMEOUT} ${target} -search=${search} ${corpus})
    endif()
endforeach()

# test/random: random graphs and models against the plain definition; the programs share the other files.
set(random_programs graphs models)
file(GLOB random_parts CONFIGURE_DEPENDS test/random/*.c)
list(FILTER random_parts EXCLUDE REGEX "/(graphs|models)\\.c$")
if(TARGET weft_static AND (NOT WEFT_TEST_ONLY OR "test/random" MATCHES "${WEFT_TEST_ONLY}"))
    add_library(weft_random OBJECT ${random_parts})
    target_include_directories(weft_random PRIVATE test)
    target_compile_options(weft_random PRIVATE -UNDEBUG)
    target_link_libraries(weft_random PRIVATE weft_common weft_static)
    foreach(stem IN LISTS random_programs)
        set(file ${PROJECT_SOURCE_DIR}/test/random/${stem}.c)
        if(EXISTS ${file})
            weft_test_program(${file} name target)
            target_sources(${target} PRIVATE $<TARGET_OBJECTS:weft_random>)
            weft_timeout(${file} timeout)
            weft_add_test(${name} random ${timeout} ${target})
            set_tests_properties(${name} PROPERTIES PROCESSORS 2)
            weft_add_test(device/${name} device ${timeout} ${target} --device fake --seeds 0:400)
            if(WEFT_HAVE_CUDA)
                weft_add_test(cuda/${name} cuda ${timeout} ${target} --device emulated)
            endif()
        endif()
    endforeach()
endif()

# test/sim: whole jobs in one process with virtual time and faults, and each of their guards taken away.
file(GLOB sim_parts CONFIGURE_DEPENDS test/sim/*.c)
if(TARGET weft_static AND (NOT WEFT_TEST_ONLY OR "test/sim" MATCHES "${WEFT_TEST_ONLY}"))
    add_executable(test-sim ${sim_parts})
    set_target_properties(test-sim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test/bin)
    target_compile_options(test-sim PRIVATE -UNDEBUG)
    target_link_libraries(test-sim PRIVATE weft_common weft_static)
    weft_add_test(sim/seeds sim ${WEFT_TEST_TIMEOUT} test-sim --seeds 0:3000)
    weft_add_test(sim/found sim ${WEFT_TEST_TIMEOUT} test-sim --found ${PROJECT_SOURCE_DIR}/test/sim/found.txt)
    weft_add_test(sim/async sim ${WEFT_TEST_TIMEOUT} test-sim --mode async --seeds 0:3000)
    weft_add_test(sim/stale sim ${WEFT_TEST_TIMEOUT} test-sim --mode stale --seeds 0:3000)
    weft_add_test(sim/real sim ${WEFT_TEST_TIMEOUT} test-sim --real --seeds 0:300)
    weft_add_test(sim/real_async sim ${WEFT_TEST_TIMEOUT} test-sim --real --mode async --seeds 0:200)
    weft_add_test(sim/real_stale sim ${WEFT_TEST_TIMEOUT} test-sim --real --mode stale --seeds 0:200)
    if(NOT WEFT_SANITIZE)
        weft_add_test(sim/guards "sim;slow" 1800 python3 ${PROJECT_SOURCE_DIR}/tools/mutate-sim $<TARGET_FILE:weft_static>
                      --unnoticed 300)
        set_tests_properties(sim/guards PROPERTIES PROCESSORS 2)
    endif()
endif()

# test/formats/*.c: weft's side of tools/check-formats; not in the default build.
file(GLOB formats CONFIGURE_DEPENDS test/formats/*.c)
if(NOT TARGET weft_static)
    set(formats "")
endif()
add_custom_target(format-programs)
foreach(file IN LISTS formats)
    cmake_path(GET file STEM stem)
    add_executable(formats-${stem} EXCLUDE_FROM_ALL ${file})
    set_target_properties(formats-${stem} PROPERTIES
        OUTPUT_NAME ${stem} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test/formats)
    target_link_libraries(formats-${stem} PRIVATE weft_common weft_static)
    add_dependencies(format-programs formats-${stem})
endforeach()

# Shell tests.
file(GLOB scripts CONFIGURE_DEPENDS test/cli/*.sh test/install/*.sh test/tools/*.sh)
foreach(file IN LISTS scripts)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/test OUTPUT_VARIABLE name)
    cmake_path(REMOVE_EXTENSION name)
    cmake_path(GET name PARENT_PATH label)
    weft_timeout(${file} timeout)
    # No command, no command tests; an outside program would need our sanitizers too.
    if((label STREQUAL "cli" AND NOT TARGET weft_cli) OR
       (label STREQUAL "install" AND (WEFT_SANITIZE OR NOT TARGET weft)))
        continue()
    endif()
    weft_add_test(${name} ${label} ${timeout} bash ${file})
    if(name STREQUAL "cli/launch_certs") # its certificates last for seconds
        set_tests_properties(${name} PROPERTIES PROCESSORS 2)
    endif()
endforeach()

# Examples named in examples/TESTS ("name arguments...") run as tests; @SRC@ is the source folder.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS examples/TESTS)
if(EXISTS ${PROJECT_SOURCE_DIR}/examples/TESTS)
    file(STRINGS examples/TESTS lines REGEX "^[^#]")
    set(n 0)
    foreach(line IN LISTS lines)
        string(REPLACE "@SRC@" "${PROJECT_SOURCE_DIR}" line "${line}")
        separate_arguments(args UNIX_COMMAND "${line}")
        list(POP_FRONT args name)
        if(TARGET example-${name})
            math(EXPR n "${n} + 1")
            weft_add_test(examples/${n}-${name} examples ${WEFT_TEST_TIMEOUT}
                          example-${name} ${args})
        endif()
    endforeach()
endif()
