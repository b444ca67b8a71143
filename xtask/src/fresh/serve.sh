# The first command of the README: the server starts, answers, runs a job, and stops on a signal.
set -eu
if (exec 3<>/dev/tcp/127.0.0.1/7070) 2>/dev/null; then
    echo "port 7070 is taken: stop the program that listens there"
    exit 1
fi
log=$HOME/serve.log
cargo build --release
cargo run --release -- serve >"$log" 2>&1 &
server=$!

fails() {
    echo "$1; the server said:"
    cat "$log"
    exit 1
}
answers() {
    exec 3<>/dev/tcp/127.0.0.1/7070
    printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    head -n 1 <&3 | grep ' 200 '
}

tried=0
until kill -0 "$server" 2>/dev/null && (answers) >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || fails "the server ended before it was ready"
    tried=$((tried + 1))
    [ "$tried" -lt 600 ] || fails "the server is not ready after a minute"
    sleep 0.1
done
target/release/punctual job submit hello --type noop --wait || fails "the job did not run"
kill -TERM "$server" || fails "the server ended by itself"
wait "$server" || fails "the server did not stop in order"
cat "$log"
