# fish completion for holdfast(1). Verbs and options are read from `holdfast
# help`; keys are completed from the locks that are held.

set -g __holdfast_schemes memory: file: raft:// quorum:// redis:// \
    redis+unix:// rediss:// redlock:// mongodb:// mongodb+srv://

# The words before the cursor that are not options; the first is "holdfast".
function __holdfast_words
    set -l skip
    set -l verb
    for word in (commandline -opc)
        if test -n "$skip"
            set skip
        else if contains -- $word --url --ttl --wait -w --conflict-exit-code -E \
                --command -c --value --expect --note --token --from --kinds --count \
                --mode --nodes --lease-max --dir --for --clients --history --seed
            set skip yes
        else if test "$word" = --keys; and test "$verb" = torture
            set skip yes
        else if not string match -q -- '-*' $word
            test "$word" = torture; and set verb torture
            echo $word
        end
    end
end

function __holdfast_verb
    set -l words (__holdfast_words)
    echo $words[2]
end

function __holdfast_needs_verb
    test -z (__holdfast_verb)
end

function __holdfast_verbs
    holdfast help 2>/dev/null |
        string replace -rf '^  ([a-z]+) +(\w.*)$' '$1\t$2' |
        string match -v -r '^holdfast\t'
end

function __holdfast_options
    holdfast help (__holdfast_verb) 2>/dev/null |
        string replace -rf '^  (?:-\w,|   ) (--[a-z-]+)[A-Z ]* +(.*)$' '$1\t$2'
end

function __holdfast_url
    set -l words (commandline -opc)
    for i in (seq (count $words))
        if test $words[$i] = --url
            echo --url $words[(math $i + 1)]
        else if string match -q -- '--url=*' $words[$i]
            echo $words[$i]
        end
    end | string split ' '
end

function __holdfast_wants_key
    set -l words (__holdfast_words)
    test (count $words) -eq 2
    and not contains -- $words[2] help version doctor status cluster torture
end

function __holdfast_keys
    holdfast (__holdfast_url) ls --keys 2>/dev/null | string match -v "\$'*"
end

function __holdfast_previous
    set -l words (commandline -opc)
    contains -- $words[-1] $argv
end

function __holdfast_in_command
    set -l words (__holdfast_words)
    test "$words[2]" = run; and test (count $words) -gt 2
end

complete -c holdfast -f
complete -c holdfast -n __holdfast_needs_verb -a '(__holdfast_verbs)'
complete -c holdfast -n '__holdfast_previous help' -a '(__holdfast_verbs)'
complete -c holdfast -n 'string match -q -- "-*" (commandline -ct); and not __holdfast_in_command' \
    -a '(__holdfast_options)'
complete -c holdfast -n '__holdfast_previous --url doctor status torture' \
    -a '$__holdfast_schemes'
complete -c holdfast -n '__holdfast_previous --ttl --wait -w --for --lease-max' \
    -a '500ms 5s 30s 5m 1h'
complete -c holdfast -n '__holdfast_previous --kinds' \
    -a 'granted renewed updated released expired forced queued withdrawn dropped'
complete -c holdfast -n '__holdfast_previous cluster' -a 'up down'
complete -c holdfast -n '__holdfast_previous --mode' -a 'raft quorum'
complete -c holdfast -n '__holdfast_previous --nodes' -a '1 3 5'
complete -c holdfast -n '__holdfast_previous --dir' -a '(__fish_complete_directories)'
complete -c holdfast -n '__holdfast_previous --history' -F
complete -c holdfast -n __holdfast_wants_key -a '(__holdfast_keys)'
complete -c holdfast -n __holdfast_in_command \
    -a '(__fish_complete_subcommand --fcs-skip=2)' -F
