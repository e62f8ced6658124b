# bash completion for holdfast(1). tests/cli/documents.py compares the options
# with `holdfast help`. Keys are completed from the locks that are held.

_holdfast_options() { # VERB
    local common='--url --json --verbose --help'
    local waiting='--wait --no-wait --conflict-exit-code --quiet'
    case $1 in
    run) echo "--ttl $waiting --command --exclusive --close --value --note $common" ;;
    lock) echo "--ttl $waiting --hold --value --note $common" ;;
    unlock) echo "--quiet $common" ;;
    renew) echo "--ttl $common" ;;
    update) echo "--expect $common" ;;
    wait) echo "--held $waiting $common" ;;
    watch) echo "--from --kinds --count $common" ;;
    force) echo "--token --now $common" ;;
    ls) echo "--keys $common" ;;
    cluster) echo "--mode --nodes --lease-max --dir --json --verbose --help" ;;
    status) echo "--dir $common" ;;
    torture) echo "--ttl --for --clients --keys --kill --history --seed $common" ;;
    *) echo "$common" ;;
    esac
}

_holdfast_schemes() {
    echo 'memory: file: raft:// quorum:// redis:// redis+unix:// rediss://' \
        'redlock:// mongodb:// mongodb+srv://'
}

# Whether the option takes a value. --keys does for `torture`, not for `ls`.
_holdfast_has_value() { # OPTION
    case $1 in
    --keys) [[ ${words[0]-} == torture ]] ;;
    --ttl | --wait | -w | --conflict-exit-code | -E | --command | -c | --value | --expect | \
        --note | --token | --from | --kinds | --count | --mode | --nodes | --lease-max | --dir | --url | \
        --for | --clients | --history | --seed) ;;
    *) return 1 ;;
    esac
}

# Parse the words before the cursor. Sets `words` to the verb and its arguments,
# `url` to the value of --url, and `in_command` if the cursor is in the command
# of `run`.
_holdfast_read() { # TYPED...
    local option='' ended='' word
    words=() url='' in_command=''
    for word in "$@"; do
        if [[ $option ]]; then
            [[ $option != --url ]] || url=$word
            option=''
        elif [[ $word == --url=* && ! $ended ]]; then
            url=${word#*=}
        elif [[ $word == -- && ! $ended ]]; then
            ended=1
        elif [[ $word == -?* && ! $ended ]]; then
            ! _holdfast_has_value "$word" || option=$word
        else
            words+=("$word")
        fi
        if [[ ${words[0]-} == run ]] && ((${#words[@]} + ${#ended} > 2)); then
            in_command=1
            return
        fi
    done
}

# The held keys that begin with BEGINNING. Keys that need quotes are left out:
# their quoted form does not begin with what the user has typed.
_holdfast_keys() { # BEGINNING
    holdfast ${url:+--url "$url"} ls --keys -- "$1" 2>/dev/null |
        grep -v "^\\$'"
}

_holdfast_command() {
    local i
    for ((i = 3; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]] &&
            declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
            return
        fi
    done
    mapfile -t COMPREPLY < <(compgen -c -f -- "$1")
}

_holdfast_choices() { # PREVIOUS CURRENT
    local verbs='run lock unlock renew update show ls wait watch force doctor
        cluster status torture help version'
    case $1 in
    --ttl | --wait | -w | --for | --lease-max) echo '500ms 5s 30s 5m 1h' ;;
    --kinds)
        echo 'granted renewed updated released expired forced queued' \
            'withdrawn dropped'
        ;;
    --url) _holdfast_schemes ;;
    --conflict-exit-code | -E) echo '0 1 75' ;;
    --mode) echo 'raft quorum' ;;
    --nodes) echo '1 3 5' ;;
    --dir) compgen -d -- "$2" ;;
    --history) compgen -f -- "$2" ;;
    --value | --expect | --note | --token | --from | --count | --clients | --seed) ;;
    *)
        if [[ $2 == -* ]]; then
            _holdfast_options "${words[0]-}"
        elif [[ ${#words[@]} -eq 0 || "${words[*]}" == help ]]; then
            echo "$verbs"
        elif [[ "${words[*]}" =~ ^(doctor|status|torture)$ ]]; then
            _holdfast_schemes
        elif [[ "${words[*]}" == cluster ]]; then
            echo 'up down'
        elif [[ ${#words[@]} -eq 1 &&
            ! ${words[0]} =~ ^(version|cluster|status|torture)$ ]]; then
            _holdfast_keys "$2"
        fi
        ;;
    esac
}

_holdfast() {
    # COMP_WORDS would split a URL at its colons.
    local line=${COMP_LINE:0:COMP_POINT} typed words url in_command
    local current='' previous beginning i
    read -ra typed <<<"$line"
    if [[ $line != *[[:space:]] ]]; then
        current=${typed[-1]}
        unset 'typed[-1]'
    fi
    previous=${typed[-1]}
    _holdfast_read "${typed[@]:1}"
    COMPREPLY=()
    if [[ $in_command || ($current != -* && ${words[0]-} == run &&
        ${#words[@]} -eq 2) ]]; then
        _holdfast_command "$current"
        return
    fi
    mapfile -t COMPREPLY < <(
        compgen -W "$(_holdfast_choices "$previous" "$current")" -- "$current"
    )
    # bash replaces only the part after the last ':' or '='.
    beginning=${current%"${current##*[:=]}"}
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]=${COMPREPLY[i]#"$beginning"}
    done
}

complete -F _holdfast holdfast
