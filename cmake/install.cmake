# What `make install` puts in place: headers, both libraries, the command, man pages, weft.pc and
# the CMake package with the targets weft::weft and weft::weft_static.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
# Two export sets: whoever uses the shared library needs none of the libraries below it.
install(TARGETS weft EXPORT weftTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS weft_static EXPORT weftStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${package_dir})
install(EXPORT weftStaticTargets NAMESPACE weft:: DESTINATION ${package_dir})

configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
              DESTINATION ${package_dir})

# weft.pc finds its prefix from where it lies, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE WEFT_PC_PREFIX)
list(JOIN WEFT_PC_REQUIRES " " WEFT_PC_REQUIRES)
# It tells the linker where libweft.so is, so that programs run without LD_LIBRARY_PATH; below /usr the
# system looks there anyway. The prefix is known when installing, not before.
set(WEFT_PC_RPATH " -Wl,-rpath,\${libdir}")
configure_file(cmake/weft.pc.in weft.pc @ONLY)
set(WEFT_PC_RPATH "")
configure_file(cmake/weft.pc.in system/weft.pc @ONLY)
install(CODE "set(weft_pc ${PROJECT_BINARY_DIR}/weft.pc)
              if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
                  set(weft_pc ${PROJECT_BINARY_DIR}/system/weft.pc)
              endif()
              file(INSTALL \${weft_pc}
                   DESTINATION \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig)")

if(TARGET weft_cli)
    install(TARGETS weft_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
    # The manual page and the completion come from the command's own tables.
    if(NOT CMAKE_CROSSCOMPILING)
        install(CODE "execute_process(COMMAND $<TARGET_FILE:weft_cli> man
                                      OUTPUT_FILE ${PROJECT_BINARY_DIR}/weft.1 COMMAND_ERROR_IS_FATAL ANY)
                      execute_process(COMMAND $<TARGET_FILE:weft_cli> completion
                                      OUTPUT_FILE ${PROJECT_BINARY_DIR}/weft.bash COMMAND_ERROR_IS_FATAL ANY)
                      execute_process(COMMAND $<TARGET_FILE:weft_cli> completion zsh
                                      OUTPUT_FILE ${PROJECT_BINARY_DIR}/weft.zsh COMMAND_ERROR_IS_FATAL ANY)
                      execute_process(COMMAND $<TARGET_FILE:weft_cli> completion fish
                                      OUTPUT_FILE ${PROJECT_BINARY_DIR}/weft.fish COMMAND_ERROR_IS_FATAL ANY)")
        install(FILES ${PROJECT_BINARY_DIR}/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
        install(FILES ${PROJECT_BINARY_DIR}/weft.bash
                DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME weft)
        install(FILES ${PROJECT_BINARY_DIR}/weft.zsh
                DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _weft)
        install(FILES ${PROJECT_BINARY_DIR}/weft.fish
                DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    endif()
endif()
foreach(section 1 3 5 7)
    file(GLOB pages CONFIGURE_DEPENDS docs/man/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()
