# bash completion for tfdist and tfdist-luajit
_tfdist() {
  local word=${COMP_WORDS[COMP_CWORD]}
  local before=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # bash splits --option=value at the sign.
  if [ "$before" = '=' ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  if [ "$word" = '=' ]; then word=''; fi
  case $before in
    --queue)
      COMPREPLY=($(compgen -W 'auto inline queued' -- "$word")); return ;;
    --log)
      COMPREPLY=($(compgen -W 'error warning info debug' -- "$word")); return ;;
    --progress)
      COMPREPLY=($(compgen -W 'auto bar lines none' -- "$word")); return ;;
    --strict)
      COMPREPLY=($(compgen -W 'error' -- "$word")); return ;;
    help)
      COMPREPLY=($(compgen -W 'env run devices doctor version' -- "$word")); return ;;
    ckpt)
      COMPREPLY=($(compgen -W 'ls verify' -- "$word")); return ;;
    events)
      COMPREPLY=($(compgen -W 'ls plot' -- "$word")); return ;;
    status)
      compopt -o filenames
      COMPREPLY=($(compgen -d -- "$word")); return ;;
    flight)
      compopt -o filenames
      COMPREPLY=($(compgen -f -X '!*.flight' -- "$word")
        $(compgen -d -- "$word")); return ;;
    config)
      COMPREPLY=($(compgen -W 'check costs' -- "$word")); return ;;
  esac
  case $word in
    -*)
      # Behind `run` stand its own.
      if [[ " ${COMP_WORDS[*]:1:COMP_CWORD-1} " == *' run '* ]]; then
        COMPREPLY=($(compgen -W '-n --chief --workers= --ps= --evaluator
          --hosts= --dry-run --ssh --port= --max-restarts= --min-workers=
          --timeout= --log-dir= --quiet-workers --repl' -- "$word"))
        [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
        return
      fi
      COMPREPLY=($(compgen -W '--cpu-devices= --threads= --queue= --log=
        --progress= --profile --profile= --memory-limit= --full-traceback --strict
        --allow-bytecode --version --help --failpoints
        -e -l -i -v -E -W' -- "$word"))
      [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace ;;
    *)
      compopt -o filenames
      COMPREPLY=($(compgen -f -X '!*.lua' -- "$word")
        $(compgen -d -- "$word"))
      [ "$COMP_CWORD" -eq 1 ] && COMPREPLY+=($(compgen -W \
        'run ckpt config events flight status devices doctor version help' -- "$word")) ;;
  esac
}
complete -F _tfdist tfdist tfdist-luajit
