#compdef holdfast
# zsh completion for holdfast(1). Verbs and options are read from `holdfast
# help`; keys are completed from the locks that are held.

_holdfast_verbs() {
  local -a verbs
  verbs=(${(f)"$(holdfast help 2>/dev/null |
    sed -n '/^Times are/q; s/^  \([a-z]*\)  *\(.*\)$/\1:\2/p')"})
  _describe -t verbs verb verbs
}

_holdfast_options() { # VERB
  local -a options
  options=(${(f)"$(holdfast help $1 2>/dev/null |
    sed -n 's/^  \(-.,\|   \) \(--[a-z-]*\)[A-Z ]*  *\(.*\)$/\2:\3/p')"})
  _describe -o -t options option options
}

_holdfast_urls() {
  local -a schemes
  schemes=(memory: file: raft:// quorum:// redis:// redis+unix://
    rediss:// redlock:// mongodb:// mongodb+srv://)
  compadd -S '' -- $schemes
}

_holdfast_keys() { # URL
  local -a keys
  keys=(${(f)"$(holdfast ${1:+--url=$1} ls --keys 2>/dev/null |
    grep -v "^\$'")"})
  compadd -- $keys
}

_holdfast() {
  local option url word
  local -a typed
  for word in ${words[2,CURRENT-1]}; do
    if [[ -n $option ]]; then
      [[ $option == --url ]] && url=$word
      option=
    elif [[ $word == --url=* ]]; then
      url=${word#*=}
    elif [[ $word == (--url|--ttl|--wait|-w|--conflict-exit-code|-E|--command|-c|--value|--expect|--note|--token|--from|--kinds|--count|--mode|--nodes|--lease-max|--dir|--for|--clients|--history|--seed) ]]; then
      option=$word
    elif [[ $word == --keys && $typed[1] == torture ]]; then
      option=$word
    elif [[ $word != -* ]]; then
      typed+=($word)
    fi
  done
  case $option in
    --url) _holdfast_urls; return ;;
    --mode) compadd raft quorum; return ;;
    --nodes) compadd 1 3 5; return ;;
    --dir) _files -/; return ;;
    --history) _files; return ;;
    --ttl|--wait|-w|--for|--lease-max) compadd 500ms 5s 30s 5m 1h; return ;;
    --kinds)
      compadd -S , granted renewed updated released expired forced queued \
        withdrawn dropped
      return ;;
    ?*) return ;;
  esac
  if [[ $typed[1] == run ]] && (( $#typed > 1 )); then
    _normal
  elif [[ $words[CURRENT] == -* ]]; then
    _holdfast_options $typed[1]
  elif (( $#typed == 0 )) || [[ "$typed" == help ]]; then
    _holdfast_verbs
  elif [[ "$typed" == (doctor|status|torture) ]]; then
    _holdfast_urls
  elif [[ "$typed" == cluster ]]; then
    compadd up down
  elif (( $#typed == 1 )) && [[ $typed[1] != (version|cluster|status|torture) ]]; then
    _holdfast_keys $url
  fi
}

_holdfast "$@"
