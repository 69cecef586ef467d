#!/bin/sh
# Run a command while holding a lock, by way of `holdfast serve`. Needs curl, setsid and, for its clock, Linux.
#
#     client.sh NAME COMMAND [ARG...]
#
# The command gets FENCING_TOKEN, for the requests that it makes: curl -H "Fencing-Token: $FENCING_TOKEN".
set -u

gateway=${HOLDFAST_GATEWAY:-http://127.0.0.1:7420}
ttl=${TTL_MS:-10000}
name=$(printf %s "$1" | sed 's/[\"]/\\&/g')
shift
new_id() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
id=$(new_id)

# Milliseconds of a clock that nobody sets.
now() {
    read -r up _ </proc/uptime
    echo $((${up%.*} * 1000 + (1${up#*.} - 100) * 10))
}
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# Sends METHOD PATH BODY, and waits SECONDS. Sets the variables that are in the answer. With the gateway's name in `id`,
# any gateway behind a balancer finds the lease.
ask() {
    state=
    answer=$(curl -sS --max-time "$4" -X "$1" "$gateway/v1/leases/$id$2" -H 'Accept: text/plain' \
        -H "Authorization: Bearer ${HOLDFAST_GATEWAY_TOKEN:-}" -H 'Content-Type: application/json' -d "$3") || return 1
    # A proxy that reached no gateway answers something else.
    case $answer in id=* | type=*) eval "$answer" ;; esac
}

# Only while the clock is before `until` does this program believe that it has the lock. It counts from before the request
# was sent: the answer may be on its way for long. After a long wait, it asks again. While it waits, it may begin again.
until=0
while [ "$until" -le "$(now)" ]; do
    sent=$(now)
    ask PUT '' "{\"names\": [\"$name\"], \"ttl_ms\": $ttl, \"wait_ms\": 20000}" 30 || sleep 1
    case $state in
        held) until=$((sent + valid_ms - 10)) ;; # the clock counts hundredths
        waiting | '') ;;
        draining | overloaded | no-quorum | too-many) sleep 1 ;;
        lost | released | unknown-lease | gateway-*) id=$(new_id) && sleep 1 ;;
        *)
            echo "client.sh: $detail" >&2
            exit 75
            ;;
    esac
done

export FENCING_TOKEN="$fencing_token"
# In a process group of its own, which can be ended as a whole.
setsid "$@" &
command=$!

# Extends the lease until it is lost, and then ends the command with all processes of its group. Nothing takes longer
# than it may believe.
beat() {
    while left=$((until - $(now))) && [ "$left" -gt 0 ]; do
        sleep "$(seconds $((keepalive_ms < left ? keepalive_ms : left)))" 2>/dev/null
        kill -0 "$command" 2>/dev/null || exit # it has ended, and this script was killed
        sent=$(now)
        [ "$sent" -lt "$until" ] && ask POST /keepalive '{}' "$(seconds $((until - sent)))" || continue
        case $state in
            held) until=$((sent + valid_ms - 10)) ;;
            lost | released | unknown-lease | gateway-gone) until=0 ;;
        esac
    done
    echo "client.sh: the lock is lost" >&2
    # The group may not be there yet.
    while kill -s KILL -- "-$command" 2>/dev/null || kill -0 "$command" 2>/dev/null; do sleep 0.05; done
}
beat >/dev/null &
beater=$!

wait "$command"
ended=$?
kill -s KILL "$beater" 2>/dev/null
ask DELETE '' '{}' 3
exit "$ended"
