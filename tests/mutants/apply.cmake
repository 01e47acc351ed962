# Writes OUTPUT: the source file that MUTANT names, below ROOT, with its one replacement made. Fails
# when the text to replace does not occur exactly once, because a mutant that no longer fits the
# code proves nothing. Run by mutants.cmake with cmake -P.

# Everything between two marks that stand on lines of their own.
function(cut text from to result)
  string(FIND "${text}" "\n${from}\n" begin)
  string(FIND "${text}" "\n${to}\n" end)
  if(begin LESS 0 OR end LESS begin)
    message(FATAL_ERROR "${MUTANT}: no text between lines ${from} and ${to}")
  endif()
  string(LENGTH "\n${from}\n" mark)
  math(EXPR begin "${begin} + ${mark}")
  math(EXPR length "${end} - ${begin}")
  if(length LESS 0)
    set(length 0)
  endif()
  string(SUBSTRING "${text}" ${begin} ${length} piece)
  set(${result} "${piece}" PARENT_SCOPE)
endfunction()

file(READ ${MUTANT} mutant)
string(REGEX MATCH "\nfile: ([^\n]+)\n" _ "${mutant}")
set(source ${CMAKE_MATCH_1})
cut("${mutant}" "<<<<" "====" old)
cut("${mutant}" "====" ">>>>" new)

file(READ ${ROOT}/${source} text)
string(FIND "${text}" "${old}" first)
string(FIND "${text}" "${old}" last REVERSE)
if(first LESS 0 OR NOT first EQUAL last)
  message(FATAL_ERROR "${MUTANT}: its text must occur exactly once in ${source}; mend the mutant:\n"
                      "${old}")
endif()
string(LENGTH "${old}" length)
math(EXPR rest "${first} + ${length}")
string(SUBSTRING "${text}" 0 ${first} before)
string(SUBSTRING "${text}" ${rest} -1 after)
file(WRITE ${OUTPUT} "${before}${new}${after}")
