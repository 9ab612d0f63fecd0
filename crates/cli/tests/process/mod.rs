//! The real binary, run the way a user runs it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The binary, deaf to the configuration of whoever runs the tests.
pub fn annals(folder: &Path) -> Command {
    annals_at(Path::new(env!("CARGO_BIN_EXE_annals")), folder)
}

/// The same for a copy of the binary.
pub fn annals_at(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ANNALS") {
            command.env_remove(name);
        }
    }
    command
}

/// Where the log of a server goes: to a file in the folder `ANNALS_TEST_LOGS`, in which a run of all tests looks for secrets. Without the
/// variable it goes nowhere.
pub fn kept_log(process: u32) -> Box<dyn Write + Send> {
    let Some(folder) = std::env::var_os("ANNALS_TEST_LOGS") else { return Box::new(std::io::sink()) };
    let place = Path::new(&folder).join(format!("server-{process}.log"));
    Box::new(OpenOptions::new().create(true).append(true).open(place).expect("a file for the log"))
}

/// A running `annals serve --dev` on a free port. Dropping it kills it.
pub struct Server {
    process: Child,
    /// `http://127.0.0.1:PORT`, or `https://…`.
    pub url: String,
    // Held so that what the server prints has somewhere to go.
    _out: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it in `folder` on the store `./data` there, and waits until it says its address.
    pub fn start(folder: &Path) -> Self {
        let mut command = annals(folder);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
        Self::of(command)
    }

    /// Starts what `command` says, and waits until it says its address.
    pub fn of(mut command: Command) -> Self {
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the server's process starts");
        let mut out = BufReader::new(process.stdout.take().expect("its standard output is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it prints a line");
        let Some(url) = line.split_whitespace().find(|word| word.starts_with("http")) else {
            let mut said = String::new();
            process.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
            panic!("the server ended without an address: {said}");
        };
        let url = url.to_owned();
        // Whoever reads nothing must not block the server once the pipe is full.
        let mut err = process.stderr.take().expect("its standard error is piped");
        let mut kept = kept_log(process.id());
        std::thread::spawn(move || std::io::copy(&mut err, &mut kept));
        let server = Self { process, url, _out: out };
        server.until_opened();
        server
    }

    /// A server tells its address after a second although its store is not open yet, which happens beside other programs.
    #[expect(clippy::disallowed_methods, reason = "a pause between two looks")]
    fn until_opened(&self) {
        let Some(address) = self.url.strip_prefix("http://") else { return };
        let request = format!("GET /health/ready HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let is_opening = || {
            let mut answer = String::new();
            let asked = std::net::TcpStream::connect(address).and_then(|mut stream| {
                stream.write_all(request.as_bytes())?;
                stream.read_to_string(&mut answer)
            });
            asked.is_ok() && answer.contains("it is being opened")
        };
        while is_opening() {
            // tidy: allow(pause) between two looks
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The number of its process.
    #[allow(dead_code, reason = "not every binary of tests asks")]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGKILL and waits for the end.
    #[allow(dead_code, reason = "not every test binary kills")]
    pub fn kill(mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }

    /// Sends SIGTERM and waits for the end; gives the exit code.
    #[allow(dead_code, reason = "not every test binary terminates")]
    pub fn terminate(mut self) -> Option<i32> {
        signal("TERM", self.process.id());
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process of this test.
#[allow(dead_code, reason = "not every test binary signals")]
pub fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.expect("kill runs").success());
}
