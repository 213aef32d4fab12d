#!/usr/bin/env bash
# A Sexton worker in bash and curl: one run at a time, its payload as JSON on the standard input of a command.
# SEXTON_API_URL=http://127.0.0.1:8474 ./remote_worker.sh
api=${SEXTON_API_URL:-http://127.0.0.1:8474}
lease=${LEASE:-30} # seconds; without a heartbeat for this long, other workers take over the runs
worker='' stopping=''

# The tasks of this worker. Exit code 0: success, the output is the result; 75: retry; others: permanent failure.
shout() { tr '[:lower:]' '[:upper:]'; }
nap() { sleep "$(tr -cd '0-9.')"; }

post() { curl -sS --max-time 60 -H 'content-type: application/json' --data-binary @- "$api$1"; }
field() { local rest=${answer#*"\"$1\":\""} && echo "${rest%%\"*}"; } # the first of that name; Sexton's fields come first
quoted() { tr -d '\000-\010\013-\037' | sed 's/[\\"]/\\&/g; s/\t/ /g' | awk '{ printf "%s%s", sep, $0; sep = "\\n" }'; }

work() {
  local run_id handler signed payload out code verb fields
  run_id=$(field run_id) handler=$(field handler) signed=$(field lease)
  payload=${answer#*'"payload":'} payload=${payload%',"attempt":'*}
  while sleep "$((lease / 3))" && kill -0 $$; do # as long as this process lives
    post "/v1/workers/$worker/heartbeat" <<<"{\"holding\":[\"$run_id\"]}"
  done >/dev/null 2>&1 &
  out=$("$handler" <<<"$payload" 2>&1)
  code=$?
  kill $!
  out=$(quoted <<<"$out")
  case $code in
    0) verb=complete fields="\"result\":\"$out\"" ;;
    75) verb=fail fields="\"error\":\"$out\"" ;;
    *) verb=fail fields="\"error\":\"exit $code: $out\",\"permanent\":true" ;;
  esac
  # The same report may be sent again after a lost answer: it counts once.
  until post "/v1/runs/$run_id/$verb" <<<"{\"lease\":\"$signed\",$fields}"; do sleep 1; done
  echo
}

trap 'stopping=1' TERM INT
while [ -z "$stopping" ]; do
  me=${worker:+,\"worker_id\":\"$worker\"}
  answer=$(post /v1/workers/acquire <<<'{"tasks":["shout","nap"],"name":"curl","wait":"5s","lease":'"$lease$me}")
  case $answer in
    *'"runs":[{'*) worker=$(field worker_id) && work ;;
    *'"runs":[]'*) worker=$(field worker_id) ;;
    *worker_lost*) worker='' ;; # declared dead: join again
    *) echo "cannot acquire runs: $answer" >&2 && sleep 1 ;;
  esac
done
curl -sS -X DELETE "$api/v1/workers/$worker"
