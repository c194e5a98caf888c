# The compute units to build: one word each, the folder baton/unit/<word>. Order is the order of `baton units`.
set(BATON_UNITS ref cpu cuda ane coreml)

list(TRANSFORM BATON_UNITS REPLACE "(.+)" "BATON_UNIT(\\1)" OUTPUT_VARIABLE lines)
list(JOIN lines "\n" lines)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/baton/unit_list.inc CONTENT "${lines}\n" @ONLY)
