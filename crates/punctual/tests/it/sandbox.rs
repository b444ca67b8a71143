//! Commands that attack the server and each other, as root and as another user: they reach nothing, and
//! ordinary commands still work. An ordinary user who runs these tests has fewer ways to start a server.

mod kernel;
mod paths;

use crate::process::{failure, last_execution, submit, written};
use crate::server::{ALLOW_ROOT, BINARY, Server, eventually};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, LogStreamBody};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In the environment and the arguments of servers.
const SECRET: &str = "hunter2";

/// A way to run a server with commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As root, and commands as another user.
    OtherUser,
    /// As root without the right to create namespaces, and commands as another user.
    WithoutNamespaces,
    /// As root, and commands as root.
    Root,
    /// As an ordinary user: the one who runs the tests, or nobody.
    SameUser,
}

impl Way {
    fn all() -> Vec<Way> {
        match geteuid().is_root() {
            true => vec![Way::OtherUser, Way::WithoutNamespaces, Way::Root, Way::SameUser],
            false => vec![Way::SameUser],
        }
    }

    /// Those that keep commands of the same user apart.
    fn separating() -> Vec<Way> {
        let ways: Vec<Way> = Way::all().into_iter().filter(|way| way.hides_files()).collect();
        assert!(!ways.is_empty() || !geteuid().is_root());
        ways
    }

    /// Whether the data directory of these tests is hidden. An ordinary user can write to the directories above
    /// it, so that Landlock alone cannot deny it.
    fn hides_files(self) -> bool {
        match self {
            Way::OtherUser | Way::Root => true,
            Way::WithoutNamespaces => false,
            Way::SameUser => has_user_namespaces(),
        }
    }

    /// A server with a secret in its environment and in its arguments, and with an inherited descriptor.
    fn start(self, data_dir: &Path, options: &str) -> Server {
        let options = match self {
            Way::OtherUser | Way::WithoutNamespaces => format!("--worker-run-as nobody {options}"),
            Way::Root | Way::SameUser => options.to_owned(),
        };
        let script = format!(
            r#"exec 9</etc/hostname
               exec "$0" "$@" --allow shell,process --store-password={SECRET}-flag {options}"#
        );
        let variable = format!("PUNCTUAL_STORE_PASSWORD={SECRET}-variable");
        let mut launcher = vec!["env", &variable];
        if self == Way::WithoutNamespaces {
            launcher.extend(["setpriv", "--bounding-set=-sys_admin"]);
        }
        let user = match self {
            Way::SameUser => ordinary_user(data_dir.parent().unwrap()),
            _ => vec![BINARY.to_owned()],
        };
        let (program, user) = user.split_last().unwrap();
        if !user.is_empty() {
            launcher.push("HOME=/nonexistent");
        }
        launcher.extend(user.iter().map(String::as_str));
        launcher.extend(["sh", "-c", &script]);
        launcher.push(program);
        Server::start_through(&launcher, data_dir)
    }
}

/// A server with each of these ways, on a directory that others can pass through.
fn servers(ways: Vec<Way>) -> impl Iterator<Item = (Way, Server, tempfile::TempDir)> {
    ways.into_iter().map(|way| {
        let directory = open_directory();
        (way, way.start(&directory.path().join("data"), ""), directory)
    })
}

fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    directory
}

async fn run(client: &Client, payload: Value) -> ExecutionBody {
    let job = json!({"name": "one", "job_type": "shell", "payload": payload, "max_retries": 0});
    let id = submit(client, job).await;
    client.wait(id).await.unwrap();
    last_execution(client, id).await
}

async fn stdout(client: &Client, execution: &ExecutionBody) -> Vec<String> {
    written(client, execution, LogStreamBody::Stdout).await
}

/// The output of a command that must succeed.
async fn said(client: &Client, payload: Value) -> Vec<String> {
    let execution = run(client, payload).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
    stdout(client, &execution).await
}

/// This process and all below it.
fn with_descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists: Vec<String> =
            tasks.flat_map(|task| std::fs::read_to_string(task.path().join("children"))).collect();
        found.extend(
            lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse::<u32>().unwrap()),
        );
        next += 1;
    }
    found
}

fn shows(pid: u32, file: &str, text: &str) -> bool {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).contains(text)
}

#[tokio::test]
async fn no_process_of_a_server_shows_its_secrets() {
    for (way, server, _directory) in servers(Way::all()) {
        let client = server.client();
        let id =
            submit(&client, json!({"name": "nap", "job_type": "shell", "payload": {"script": "sleep 1000"}}))
                .await;
        let sleeps = |pid: &u32| shows(*pid, "cmdline", "sleep\u{0}1000");
        eventually("the command runs", async || with_descendants(server.pid()).iter().any(sleeps)).await;
        let processes = with_descendants(server.pid());
        assert!(processes.len() >= 3, "{way:?}: no shim was found: {processes:?}");
        for pid in processes {
            for file in ["environ", "cmdline"] {
                assert!(!shows(pid, file, SECRET), "{way:?}: {file} of {pid}");
            }
        }
        // It is still the process that was started, with its name and its other arguments.
        assert!(
            shows(server.pid(), "cmdline", "--store-password=***") && shows(server.pid(), "comm", "punctual")
        );
        client.cancel(id).await.unwrap();
        client.wait(id).await.unwrap();
        assert!(server.stop().success(), "{way:?}");
    }
}

#[test]
fn a_worker_uses_a_token_that_nothing_shows() {
    let server = Server::start_with(&["--queues", "other"]);
    for (flag, variable) in [(Some(&*server.token), ""), (None, &*server.token)] {
        let mut command = Command::new(BINARY);
        command.args(["worker", "--server", &server.address]).env("PUNCTUAL_TOKEN", variable);
        command.args(flag.map(|token| ["--token", token]).into_iter().flatten());
        let mut worker = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(worker.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let is_shown = ["environ", "cmdline"].map(|file| shows(worker.id(), file, &server.token));
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert!(line.contains("works for"), "{line}");
        assert_eq!(is_shown, [false, false]);
    }
}

#[tokio::test]
async fn a_command_cannot_read_or_disturb_the_server() {
    let attack = r#"
        try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "BREACH $what"; }
        try environ cat /proc/$SERVER/environ
        try memory sh -c ": </proc/$SERVER/mem"
        try descriptors sh -c "ls /proc/$SERVER/fd/* | grep ."
        try 'secret in an environment' grep -aq 'hunter[2]' /proc/[0-9]*/environ
        try 'secret in arguments' grep -aq 'hunter[2]' /proc/$SERVER/cmdline
        try signal kill -0 $SERVER
        try 'signal to all' kill -0 -- -$SERVER
        try 'inherited descriptor' sh -c 'cat <&9'
        for fd in /proc/self/fd/*; do case $fd in */[0123]) ;; *) echo "BREACH $fd";; esac; done
        echo over"#;
    for (way, server, _directory) in servers(Way::all()) {
        let payload = json!({"script": attack, "env": {"SERVER": server.pid().to_string()}});
        assert_eq!(said(&server.client(), payload).await, ["over"], "{way:?}");
    }
}

#[tokio::test]
async fn a_command_cannot_read_or_write_the_data_directory() {
    let attack = r#"
        try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "BREACH $what"; }
        try token cat "$DATA/admin.token"
        try database cat "$DATA/punctual.db"
        try 'token through the root' cat "/proc/1/root$DATA/admin.token" "/proc/self/root$DATA/admin.token"
        try 'token through a link' sh -c 'ln -s "$DATA" "$TMPDIR/link" && cat "$TMPDIR/link/admin.token"'
        try 'file names' sh -c 'ls -A "$DATA" | grep .'
        try 'new file' touch "$DATA/new"
        try removal rm "$DATA/admin.token"
        try permissions chmod a+rx "$DATA"
        try 'permissions of the token' chmod a+r "$DATA/admin.token"
        try unmount umount "$DATA"
        try 'lazy unmount' umount -l "$DATA"
        try mount mount -t tmpfs none /mnt
        try 'mount namespace' unshare -m umount "$DATA"
        try 'user namespace' unshare -Urm umount "$DATA"
        try device mknod "$TMPDIR/disk" b 8 0
        # CAP_DAC_READ_SEARCH, CAP_SYS_MODULE, CAP_SYS_ADMIN, CAP_MKNOD
        try 'rights that uncover files' sh -c \
            '[ $((0x$(sed -n "s/^CapEff:[[:space:]]*//p" /proc/self/status) & 0x8210004)) -ne 0 ]'
        echo over"#;
    let ways = Way::all().into_iter().filter(|way| *way == Way::WithoutNamespaces || way.hides_files());
    for (way, server, _directory) in servers(ways.collect()) {
        let data_dir = server.data_dir().canonicalize().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let payload = json!({"script": attack, "env": {"DATA": data_dir}});
        assert_eq!(said(&server.client(), payload).await, ["over"], "{way:?}");
        assert_eq!((mode(&data_dir), mode(&data_dir.join("admin.token"))), (0o700, 0o600), "{way:?}");
        assert!(data_dir.join("admin.token").exists() && !data_dir.join("new").exists(), "{way:?}");
        // A working directory that is hidden later does not lead there either.
        let inside = run(&server.client(), json!({"script": "cat admin.token", "cwd": data_dir})).await;
        assert_eq!(inside.status, ExecutionStatus::Failed, "{way:?}");
        assert!(stdout(&server.client(), &inside).await.is_empty(), "{way:?}");
    }
}

/// Otherwise a command of the same user could raise the server's limit of core files, end it with a signal and read
/// its keys in the core file, where Landlock is the only layer.
#[tokio::test]
async fn the_memory_of_a_server_is_closed_to_its_own_user() {
    for (way, server, _directory) in servers(Way::all()) {
        let proc = PathBuf::from(format!("/proc/{}", server.pid()));
        let limits = std::fs::read_to_string(proc.join("limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a line");
        let limits: Vec<&str> = line.split_whitespace().take(2).collect();
        assert_eq!(limits, ["0", "0"], "{way:?}: soft and hard");
        for file in ["environ", "mem", "oom_score_adj"] {
            let owner = std::fs::metadata(proc.join(file)).unwrap().uid();
            assert_eq!(owner, 0, "{way:?}: {file}");
        }
        if way == Way::SameUser && geteuid().is_root() {
            let mut read = Command::new(AS_NOBODY[0]);
            read.args(&AS_NOBODY[1..]).arg("cat").arg(proc.join("environ"));
            assert!(!read.output().unwrap().status.success(), "the same user can read it");
        }
        // Commands run all the same.
        assert_eq!(said(&server.client(), json!({"script": "echo ran"})).await, ["ran"], "{way:?}");
    }
}

/// What turns root into an ordinary user.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
/// Runs a program where nobody can create user namespaces.
const WITHOUT_USER_NAMESPACES: [&str; 8] = [
    "unshare",
    "--user",
    "--map-current-user",
    "--keep-caps",
    "sh",
    "-c",
    "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"",
    "sh",
];

/// How an ordinary user starts the binary, and a copy of it that they can execute.
fn ordinary_user(place: &Path) -> Vec<String> {
    if !geteuid().is_root() {
        return vec![BINARY.to_owned()];
    }
    let binary = place.join("punctual");
    std::fs::copy(BINARY, &binary).unwrap();
    AS_NOBODY.into_iter().map(str::to_owned).chain([binary.to_str().unwrap().to_owned()]).collect()
}

/// Whether the kernel lets ordinary users create them.
fn has_user_namespaces() -> bool {
    let as_nobody: &[&str] = if geteuid().is_root() { &AS_NOBODY } else { &["env"] };
    let mut command = Command::new(as_nobody[0]);
    command.args(&as_nobody[1..]).args(["unshare", "--user", "--map-current-user", "--mount", "true"]);
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A server with shell jobs that an ordinary user starts where there are no user namespaces, and its log, which is
/// in `place`.
fn start_as_ordinary_user(place: &Path, data_dir: &Path) -> (Server, PathBuf) {
    let log = place.join("log");
    let script = format!("exec \"$@\" --allow shell 2>'{}'", log.display());
    let user = ordinary_user(place);
    let (program, user) = user.split_last().unwrap();
    let mut launcher = vec!["sh", "-c", &script, "sh"];
    launcher.extend(user.iter().map(String::as_str));
    if has_user_namespaces() {
        launcher.extend(WITHOUT_USER_NAMESPACES);
    }
    launcher.push(program);
    (Server::start_through(&launcher, data_dir), log)
}

#[tokio::test]
async fn the_first_start_without_namespaces_warns_of_files_that_commands_can_read() {
    let directory = open_directory();
    let data_dir = directory.path().canonicalize().unwrap().join("data");
    let (server, log) = start_as_ordinary_user(directory.path(), &data_dir);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("commands can read this"), "{said}");
    assert!(said.contains(&format!("path={}", data_dir.display())), "{said}");
    assert!(server.stop().success());
}

/// The directories above that of the data belong to root, as those of `/var/lib/punctual` do.
#[tokio::test]
async fn a_command_of_an_ordinary_user_cannot_read_the_token_after_the_first_start() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can create such a directory");
        return;
    }
    let directory = tempfile::tempdir_in("/var/lib").unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let data_dir = directory.path().join("data");
    std::fs::create_dir(&data_dir).unwrap();
    std::os::unix::fs::chown(&data_dir, Some(65534), Some(65534)).unwrap();
    let (server, log) = start_as_ordinary_user(directory.path(), &data_dir);
    let script = format!("cat '{}'; id -u", data_dir.join("admin.token").display());
    let lines = said(&server.client(), json!({"script": script})).await;
    let warned = std::fs::read_to_string(&log).unwrap();
    match punctual_shim::sandbox::landlock::supported() {
        Ok(()) => {
            assert_eq!(lines, ["65534"]);
            assert!(!warned.contains("commands can read this"), "{warned}");
            assert!(warned.contains("they can change its permissions"), "{warned}");
        }
        Err(why) => {
            assert!(warned.contains("no Landlock for commands") && warned.contains("commands can read this"));
            eprintln!("Landlock cannot deny the token here: {why}");
        }
    }
}

#[tokio::test]
async fn files_with_secrets_are_hidden() {
    for way in Way::separating() {
        let directory = open_directory();
        let key = directory.path().join("signing.key");
        std::fs::write(&key, "a key of enough letters to be one").unwrap();
        let options = format!("--http-signing-key-file {}", key.display());
        let server = way.start(&directory.path().join("data"), &options);
        let script = format!("cat {0}; wc -c <{0}", key.display());
        let lines = said(&server.client(), json!({"script": script})).await;
        assert_eq!(lines, ["0"], "{way:?}");
    }
}

/// The stages between the server and a command have the server's rights. Variables of a job, such as `LD_PRELOAD`, would
/// let it run code there. `LD_DEBUG` shows which programs the dynamic linker has applied them to.
#[tokio::test]
async fn variables_of_a_job_affect_its_command_only() {
    for (way, server, directory) in servers(Way::all()) {
        let env = json!({"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": directory.path().join("trace")});
        let lines = said(&server.client(), json!({"script": "echo $LD_DEBUG", "env": env})).await;
        assert_eq!(lines, ["files"], "{way:?}");
        let files = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_trace = |path: &PathBuf| path.to_string_lossy().contains("/trace.");
        let traces: Vec<String> =
            files.filter(is_trace).map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let lines: Vec<&str> = traces
            .iter()
            .flat_map(|trace| trace.lines())
            .filter(|line| line.contains("initialize program:"))
            .collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.ends_with("program: sh")),
            "{way:?}: {lines:?}"
        );
    }
}

/// A command that may write to a directory above them can move them, for the commands after it.
#[tokio::test]
async fn files_with_secrets_are_hidden_after_they_were_moved() {
    for way in Way::separating() {
        let directory = open_directory();
        let [above, moved] = ["above", "moved"].map(|name| directory.path().join(name));
        std::fs::create_dir(&above).unwrap();
        std::fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
        std::fs::write(above.join("signing.key"), "a key of enough letters to be one").unwrap();
        let options = format!("--http-signing-key-file {}", above.join("signing.key").display());
        let server = way.start(&directory.path().join("data"), &options);
        let script = format!("mv {} {} && echo moved", above.display(), moved.display());
        assert_eq!(said(&server.client(), json!({"script": script})).await, ["moved"], "{way:?}");
        let script = format!("cat {0}; wc -c <{0}", moved.join("signing.key").display());
        assert_eq!(said(&server.client(), json!({"script": script})).await, ["0"], "{way:?}");
    }
}

#[tokio::test]
async fn a_command_cannot_reach_the_files_of_another() {
    for (way, server, directory) in servers(Way::separating()) {
        let client = server.client();
        let go_on = directory.path().join("go-on");
        let script = format!(
            "echo private >$TMPDIR/file; echo $TMPDIR; while ! [ -e {} ]; do sleep 0.02; done; cat $TMPDIR/file",
            go_on.display()
        );
        let victim =
            submit(&client, json!({"name": "victim", "job_type": "shell", "payload": {"script": script}}))
                .await;
        let mut place = String::new();
        eventually("the first command runs", async || {
            let executions = client.executions(victim, None, None).await.unwrap().items;
            let Some(execution) = executions.first() else { return false };
            place = stdout(&client, execution).await.concat();
            !place.is_empty()
        })
        .await;
        let attack = r#"
            for path in "$PLACE" "$PLACE/file" "$PLACE/../notes"; do [ -e "$path" ] && echo "BREACH $path"; done
            echo x >"$PLACE/file" && echo BREACH write
            ls "$TMPDIR/../.." | wc -l"#;
        let execution = run(&client, json!({"script": attack, "env": {"PLACE": place}})).await;
        assert_eq!(stdout(&client, &execution).await, ["1"], "{way:?}: it sees only its own directory");
        assert!(Path::new(&place).join("file").exists(), "{way:?}");
        std::fs::write(&go_on, "").unwrap();
        client.wait(victim).await.unwrap();
        let execution = last_execution(&client, victim).await;
        assert_eq!(stdout(&client, &execution).await, [place.as_str(), "private"], "{way:?}");
        assert!(!Path::new(&place).parent().unwrap().exists(), "{way:?}: it is removed");
    }
}

#[tokio::test]
async fn a_command_of_another_user_has_no_rights_of_root() {
    let script = r#"
        id -u; id -G; umask; echo $HOME; echo $USER $LOGNAME; stat -c '%U %a' "$TMPDIR"
        grep -E '^(CapEff|CapPrm|NoNewPrivs):' /proc/self/status
        cp "$(command -v id)" "$TMPDIR/id" && chmod u+s "$TMPDIR/id" && "$TMPDIR/id" -u
        cat /etc/shadow"#;
    if !geteuid().is_root() {
        let directory = tempfile::tempdir().unwrap();
        let refused = serve(directory.path(), &["--worker-run-as", "65534:65534"]);
        assert!(refused.contains("only root can run commands as another user"), "{refused}");
        return;
    }
    for (way, server, _directory) in servers(vec![Way::OtherUser, Way::WithoutNamespaces]) {
        let execution = run(&server.client(), json!({"script": script})).await;
        assert_eq!(execution.status, ExecutionStatus::Failed, "{way:?}: it has read /etc/shadow");
        let lines: Vec<String> = stdout(&server.client(), &execution).await;
        let nobody = [
            "65534",
            "65534",
            "0022",
            "/nonexistent",
            "nobody nobody",
            "nobody 700",
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
            "65534",
        ];
        assert_eq!(lines, nobody, "{way:?}");
    }
}

#[tokio::test]
async fn each_queue_can_have_its_user() {
    if !geteuid().is_root() {
        let directory = tempfile::tempdir().unwrap();
        let refused = serve(directory.path(), &["--worker-run-as-by-queue", "other=65533:65533"]);
        assert!(refused.contains("worker.run_as_by_queue is 65533:65533"), "{refused}");
        return;
    }
    let directory = open_directory();
    let options = "--worker-run-as-by-queue special=65533:65532";
    let server = Way::OtherUser.start(&directory.path().join("data"), options);
    let client = server.client();
    for (queue, expected) in [("special", "65533 65532 65533"), ("default", "65534 65534 nobody")] {
        let payload = json!({"script": "echo $(id -u) $(id -g) $USER; touch $TMPDIR/x"});
        let job =
            json!({"name": "one", "job_type": "shell", "queue": queue, "payload": payload, "max_retries": 0});
        let id = submit(&client, job).await;
        client.wait(id).await.unwrap();
        let execution = last_execution(&client, id).await;
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
        assert_eq!(stdout(&client, &execution).await, [expected]);
    }
}

#[tokio::test]
async fn ordinary_commands_work_in_a_sandbox() {
    let script = r#"
        set -e
        cat; echo; pwd
        cd "$TMPDIR"
        git init -q . && git -c user.name=x -c user.email=x@y commit -q --allow-empty -m first && git log --format=%s
        mkdir a b && touch a/file && mv a/file b/ && ls b
        seq 100000 | sort -n | tail -n 1
        (sleep 0.1; echo child) & wait
        echo "$PUNCTUAL_ATTEMPT"
        file=$(mktemp) && echo text >"$file" && cat "$file"
        echo out >/dev/stdout
        ls /etc/hostname
        echo '{"percent": 40, "message": "half", "checkpoint": {"row": 7}}' >"$PUNCTUAL_NOTES"
        exit 3"#;
    for (way, server, directory) in servers(Way::all()) {
        let client = server.client();
        let payload = json!({"script": script, "stdin": "input", "cwd": directory.path(),
            "limits": {"memory": "256M", "processes": 50, "cpu_secs": 30}});
        let execution = run(&client, payload).await;
        let cwd = directory.path().canonicalize().unwrap();
        let expected = [
            "input",
            cwd.to_str().unwrap(),
            "first",
            "file",
            "100000",
            "child",
            "1",
            "text",
            "out",
            "/etc/hostname",
        ];
        assert_eq!(stdout(&client, &execution).await, expected, "{way:?}: {:?}", execution.error_message);
        assert_eq!(failure(&execution), "exited with code 3", "{way:?}");
        assert_eq!(execution.progress.unwrap().message.as_deref(), Some("half"), "{way:?}");
    }
}

#[tokio::test]
async fn a_directory_that_the_user_cannot_enter_is_named() {
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), Permissions::from_mode(0o000)).unwrap();
    let expected = |way: Way| match way {
        Way::OtherUser | Way::WithoutNamespaces => {
            format!(
                "payload.cwd: the user nobody (65534:65534) cannot enter {}: give it access",
                closed.path().display()
            )
        }
        Way::Root | Way::SameUser => format!("payload.cwd: {} is not a directory", closed.path().display()),
    };
    for (way, server, _directory) in servers(Way::all().into_iter().filter(|way| *way != Way::Root).collect())
    {
        let execution = run(&server.client(), json!({"script": "true", "cwd": closed.path()})).await;
        assert!(failure(&execution).starts_with(&expected(way)), "{:?}", execution.error_message);
    }
}

#[tokio::test]
async fn a_command_cannot_forge_its_end() {
    let script = r#"
        if grep -aq __init /proc/1/cmdline; then
            grep -aq '"nonc[e]"' /proc/1/cmdline && echo "a nonce in the arguments"
            nonces=$(cat /proc/1/environ | grep -ao 'NONCE=[0-9]*')
            for nonce in $(echo "$nonces" | grep -o '[0-9]*'); do
                printf '\0%s {"exited":{"code":0}}\n' "$nonce" >&2
            done
            for fd in /proc/1/fd/*; do
                [ -p "$fd" ] && printf '{"exited":{"code":0}}' >"$fd"
            done
        fi
        exit 3"#;
    for (way, server, _directory) in servers(Way::all()) {
        let execution = run(&server.client(), json!({"script": script})).await;
        assert_eq!(execution.status, ExecutionStatus::Failed, "{way:?}");
        let error = execution.error_message.as_deref().unwrap_or_default();
        assert!(error.contains("code 3"), "{way:?}: {error}");
        let shown = stdout(&server.client(), &execution).await;
        assert!(!shown.iter().any(|line| line.contains("a nonce")), "{way:?}: {shown:?}");
    }
}

#[tokio::test]
async fn a_command_that_hides_its_files_leaves_none() {
    let script = "mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod 000 $TMPDIR/a/b $TMPDIR/a; echo $TMPDIR; kill -KILL $$";
    for (way, server, _directory) in servers(Way::all()) {
        let execution = run(&server.client(), json!({"script": script})).await;
        let place = stdout(&server.client(), &execution).await.concat();
        assert!(
            place.contains("/punctual-") && !Path::new(&place).parent().unwrap().exists(),
            "{way:?}: {place}"
        );
    }
}

/// The complaint of a server that does not start.
fn serve(directory: &Path, options: &[&str]) -> String {
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--allow", "shell", "--data-dir"])
        .arg(directory.join("data"))
        .args(options)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_refuses_what_it_cannot_keep_and_says_what_to_set() {
    let directory = tempfile::tempdir().unwrap();
    let user = serve(directory.path(), &["--worker-run-as", "no-such-user"]);
    assert!(user.contains("worker.run_as is no-such-user: there is no user no-such-user"), "{user}");
    let root = serve(directory.path(), &["--worker-run-as", "root"]);
    assert!(root.contains("worker.run_as is root") && root.contains("allow_root_commands"), "{root}");
    let wrong = serve(directory.path(), &["--worker-isolation", "much"]);
    assert!(wrong.contains("must be auto or strict or none, but is \"much\""), "{wrong}");
    if geteuid().is_root() {
        let refused = serve(directory.path(), &[]);
        assert!(refused.contains("this process runs as root, and shell jobs would do so, too"), "{refused}");
        assert!(
            refused.contains("--worker-run-as") && refused.contains("--allow-root-commands"),
            "{refused}"
        );
        assert!(
            !directory.path().join("data").exists(),
            "a user who starts it next can create the directory"
        );
    }
}

#[test]
fn strict_isolation_refuses_a_machine_without_namespaces() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_admin", BINARY, "serve", "--listen", "127.0.0.1:0"])
        .args(["--allow", "shell", "--worker-isolation", "strict", "--data-dir"])
        .arg(directory.path().join("data"))
        .env(ALLOW_ROOT, "true")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if geteuid().is_root() {
        assert_eq!(output.status.code(), Some(7), "{complaint}");
        assert!(complaint.contains("worker.isolation is strict: no namespaces for commands"), "{complaint}");
    } else {
        assert!(!output.status.success());
    }
}

/// The doctor's findings of one check, with these variables.
fn examined(check: &str, variables: &[(&str, &str)]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["doctor", "-o", "json", "--data-dir"])
        .arg(directory.path())
        .env("PUNCTUAL_ALLOW", "shell")
        .envs(variables.iter().copied())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check).cloned().unwrap_or(Value::Null)
}

#[test]
fn the_doctor_says_how_commands_are_isolated() {
    let none = examined("isolation", &[("PUNCTUAL_WORKER_ISOLATION", "none")]);
    assert_eq!(none["level"], "warning");
    assert!(none["fix"].as_str().unwrap().contains("worker.isolation = \"auto\""), "{none}");
    if geteuid().is_root() {
        let user = examined("user", &[]);
        assert_eq!(user["level"], "failed", "{user}");
        assert!(user["fix"].as_str().unwrap().contains("worker.run_as"), "{user}");
        let other = [("PUNCTUAL_WORKER_RUN_AS", "nobody")];
        assert_eq!(examined("user", &other)["level"], "good");
        assert_eq!(examined("server files", &other), Value::Null);
        let isolation = examined("isolation", &other);
        assert!(isolation["found"].as_str().unwrap().contains("as nobody (65534:65534)"), "{isolation}");
    } else {
        let (isolation, files) = (examined("isolation", &[]), examined("server files", &[]));
        if has_user_namespaces() {
            assert!(
                isolation["found"].as_str().unwrap().contains("own PID and mount namespaces"),
                "{isolation}"
            );
            assert_eq!(files, Value::Null);
        } else {
            assert!(isolation["fix"].as_str().unwrap().contains("start the worker as root"), "{isolation}");
            assert!(files["found"].as_str().unwrap().contains("commands can read"), "{files}");
        }
    }
}
