# cmake -DROOT=... -DLIST=... -DEXTRA=... -DOUT=... -P source_digest.cmake: writes OUT, a C++ string of 16 hex digits
# over the names and bytes of the files that LIST names (one a line, below ROOT) and over EXTRA.
file(STRINGS ${LIST} files)
set(all "${EXTRA}\n")
foreach(file IN LISTS files)
  file(SHA256 ${ROOT}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 16 digest)
file(CONFIGURE OUTPUT ${OUT} CONTENT "\"${digest}\"\n" @ONLY)
