# shellcheck shell=bash disable=SC2034 common.sh - functions for the other
# scripts. It changes to the root of the tree.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
results=build/results
cores=$(nproc 2>/dev/null || echo 2)

if [ -t 1 ]; then
    bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
    bold='' red='' green='' plain=''
fi

# Print the installed command NAME, or NAME-NN with the highest NN. False if
# there is none.
tool() { # NAME
    local version
    if command -v "$1" >/dev/null; then
        echo "$1"
        return
    fi
    for version in 20 19 18 17 16 15 14; do
        if command -v "$1-$version" >/dev/null; then
            echo "$1-$version"
            return
        fi
    done
    return 1
}

# Configure the build folder DIR. A stamp file in DIR records compiler and
# options; nothing is done if they are unchanged.
configure() { # DIR COMPILER [meson option...]
    local dir=$1 compiler=$2 stamp=$1/.configured-by wanted="${*:2}" current=''
    shift 2
    [ -f "$stamp" ] && [ -f "$dir/build.ninja" ] && current=$(cat "$stamp")
    [ "$current" = "$wanted" ] && return
    if [ "$dir" != build ]; then
        rm -rf "$dir"
    elif [ "${current%% *}" = "$compiler" ]; then
        set -- --reconfigure "$@"
    else
        # build/ contains other builds, so remove only the files of Meson.
        rm -rf build/build.ninja build/meson-private build/meson-info
    fi
    CC=$compiler meson setup "$dir" "$@" || return
    echo "$wanted" >"$stamp"
}

compile() { # DIR [target...]
    ninja -C "$1" -j "$cores" "${@:2}"
}

# Run a command, and print its output only if it fails.
quietly() { # COMMAND...
    local log status
    log=$(mktemp) || return
    "$@" >"$log" 2>&1
    status=$?
    [ $status -eq 0 ] || cat "$log" >&2
    rm -f "$log"
    return $status
}

# Options of a build with sanitizers. clang links the sanitizer runtime into
# programs only, so the shared library has undefined symbols. Reports need line
# numbers and no other debug information, and -O1 compiles in half the time.
sanitized=(-Dbench=false -Dexamples=false -Db_lundef=false -Doptimization=1
    '-Dc_args=-fno-sanitize-recover=all -fno-omit-frame-pointer -g1')

export ASAN_OPTIONS=${ASAN_OPTIONS-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS-second_deadlock_stack=1:history_size=4:suppressions=$PWD/tests/tsan.txt}
