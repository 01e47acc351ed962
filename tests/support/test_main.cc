// The one translation unit with Catch2's main: its header is slow to compile with the runner in it.

#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
