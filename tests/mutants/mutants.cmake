# Mutants: faults that the tests must notice. Each is a file <name>.mutant here: a sentence, the
# source file it changes, the test that notices, and a text of it between <<<< and ==== that is
# replaced by the text between ==== and >>>>. The product's own sources never know of them: run.py
# mutates a copy of the tree, and for what follows a mutated copy of the file is made in the build
# tree and compiled instead.

# weft_mutate_sources(<result> <name> <source> ...): sets <result> to the absolute paths given, with
# the mutated copy in place of the file that <name>.mutant changes.
function(weft_mutate_sources result name)
  set(mutant ${PROJECT_SOURCE_DIR}/tests/mutants/${name}.mutant)
  set(script ${PROJECT_SOURCE_DIR}/tests/mutants/apply.cmake)
  file(STRINGS ${mutant} line REGEX "^file: ")
  string(REPLACE "file: " "" source "${line}")
  set(original ${PROJECT_SOURCE_DIR}/${source})
  set(mutated ${PROJECT_BINARY_DIR}/mutants/${name}/${source})
  list(FIND ARGN ${original} place)
  if(place LESS 0)
    message(FATAL_ERROR "${mutant}: ${source} is not among the sources it is to mutate")
  endif()
  add_custom_command(OUTPUT ${mutated}
    COMMAND ${CMAKE_COMMAND} -DMUTANT=${mutant} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${mutated}
            -P ${script}
    DEPENDS ${mutant} ${script} ${original}
    COMMENT "Mutating ${source}: ${name}" VERBATIM)
  list(REMOVE_AT ARGN ${place})
  list(APPEND ARGN ${mutated})
  set(${result} ${ARGN} PARENT_SCOPE)
endfunction()
