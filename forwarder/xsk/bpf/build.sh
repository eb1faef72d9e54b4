#!/bin/sh
# Compiles classifier.c into classifier.o and records the compiler.
# Usage: build.sh          write classifier.o and classifier.compiler
#        build.sh --check  compile again and compare; says so and succeeds where
#                          the recorded compiler is not installed
# Needs clang, llvm-strip and libbpf's headers (Debian: clang llvm libbpf-dev).
# The object holds no path of the machine: sources are named relative to this folder.
set -eu
cd "$(dirname "$0")"

version() { clang --version | head -n 1; dpkg-query -W -f 'libbpf-dev ${Version}\n' libbpf-dev 2>/dev/null || echo 'libbpf-dev unknown'; }

compile() {
	clang -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -target bpfel -mcpu=v3 \
		-I"/usr/include/$(uname -m)-linux-gnu" -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir=. \
		-c classifier.c -o "$1"
	llvm-strip -g "$1" # drops DWARF, keeps BTF, which describes the maps
}

case "${1-}" in
"")
	compile classifier.o
	version >classifier.compiler
	;;
--check)
	if ! command -v clang >/dev/null || [ "$(version)" != "$(cat classifier.compiler)" ]; then
		echo "classifier.o not recompiled: it was made with $(head -n 1 classifier.compiler), which is not installed here"
		exit 0
	fi
	again=$(mktemp)
	trap 'rm -f "$again"' EXIT
	compile "$again"
	cmp "$again" classifier.o || {
		echo "classifier.o is not what classifier.c compiles to; run $0" >&2
		exit 1
	}
	echo "classifier.o matches classifier.c"
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
