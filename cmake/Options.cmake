# Compiler options that hold for every target of the project, as one interface target.
add_library(stepscope_options INTERFACE)
target_compile_features(stepscope_options INTERFACE cxx_std_20)
target_include_directories(stepscope_options INTERFACE ${PROJECT_SOURCE_DIR})
# -Wno-restrict: g++ 12 warns about std::string operator+ without cause (GCC bug 105651).
# -ffp-contract=off: the arithmetic of bitsandbytes is reproduced bit for bit, and every fused
# multiply-add is written out; a compiler that fuses on its own breaks the AdamW8bit parameter.
target_compile_options(
  stepscope_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow=local;-Wconversion;-Wno-restrict;-ffp-contract=off>)
if(STEPSCOPE_WERROR)
  target_compile_options(stepscope_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(STEPSCOPE_SANITIZE)
  target_compile_options(
    stepscope_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${STEPSCOPE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(stepscope_options INTERFACE -fsanitize=${STEPSCOPE_SANITIZE})
endif()
