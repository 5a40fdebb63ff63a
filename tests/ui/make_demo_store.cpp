// SPDX-License-Identifier: GPL-3.0-or-later
// make_demo_store FILE: a store to look at the workbench with.
#include "tests/ui/synthetic_store.h"

#include <cstdio>

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "make_demo_store FILE\n");
        return 2;
    }
    const auto status = rankyard::test::putDemo(argv[1]);
    if (!status) {
        std::fprintf(stderr, "make_demo_store: %s\n", status.error().text().c_str());
        return 3;
    }
    return 0;
}
