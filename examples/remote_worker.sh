#!/usr/bin/env bash
# A Sexton worker in bash and curl: one run at a time, its payload as JSON on the standard input of a command.
# SEXTON_API_URL=http://127.0.0.1:8474 ./remote_worker.sh
api=${SEXTON_API_URL:-http://127.0.0.1:8474}
lease=${LEASE:-30} # seconds; silent for longer, we are dead, and others do our work
worker='' stopping=''

# What this worker knows how to do. Exit 0: done, what it printed is the result; 75: to be tried again; others: failed for good.
shout() { tr '[:lower:]' '[:upper:]'; }
nap() { sleep "$(tr -cd '0-9.')"; }

post() { curl -sS --max-time 60 -H 'content-type: application/json' --data-binary @- "$api$1"; }
field() { local rest=${answer#*"\"$1\":\""} && echo "${rest%%\"*}"; } # the first of that name; ours come before the payload
quoted() { tr -d '\000-\010\013-\037' | sed 's/[\\"]/\\&/g; s/\t/ /g' | awk '{ printf "%s%s", sep, $0; sep = "\\n" }'; }

work() {
  local run_id handler signed payload out code verb said
  run_id=$(field run_id) handler=$(field handler) signed=$(field lease)
  payload=${answer#*'"payload":'} payload=${payload%',"attempt":'*}
  while sleep "$((lease / 3))" && kill -0 $$; do # as long as this very process lives
    post "/v1/workers/$worker/heartbeat" <<<"{\"holding\":[\"$run_id\"]}"
  done >/dev/null 2>&1 &
  out=$("$handler" <<<"$payload" 2>&1)
  code=$?
  kill $!
  out=$(quoted <<<"$out")
  case $code in
    0) verb=complete said="\"result\":\"$out\"" ;;
    75) verb=fail said="\"error\":\"$out\"" ;;
    *) verb=fail said="\"error\":\"exit $code: $out\",\"permanent\":true" ;;
  esac
  # The same report may be sent again: one whose answer was lost counts once.
  until post "/v1/runs/$run_id/$verb" <<<"{\"lease\":\"$signed\",$said}"; do sleep 1; done
  echo
}

trap 'stopping=1' TERM INT
while [ -z "$stopping" ]; do
  me=${worker:+,\"worker_id\":\"$worker\"}
  answer=$(post /v1/workers/acquire <<<'{"tasks":["shout","nap"],"name":"curl","wait":"5s","lease":'"$lease$me}")
  case $answer in
    *'"runs":[{'*) worker=$(field worker_id) && work ;;
    *'"runs":[]'*) worker=$(field worker_id) ;;
    *worker_lost*) worker='' ;; # declared dead: join anew
    *) echo "no runs to be had: $answer" >&2 && sleep 1 ;;
  esac
done
curl -sS -X DELETE "$api/v1/workers/$worker"
