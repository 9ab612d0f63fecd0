//! The process of a service. It ends with the program that started it, however that ends, and its data is removed.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs the program until standard input ends, which happens when the parent ends for any reason. Then it stops the program and removes
/// its data. So nothing is left behind after a kill, and nothing is ever stopped by name.
const UNTIL_PARENT_ENDS: &str = r#"
data=$1; signal=$2; shift 2
"$@" & child=$!
cat > /dev/null
kill -$signal $child; wait $child
rm -rf "$data"
"#;

/// How often a service is polled until it is up: a minute in all.
pub const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A running service. It stops when this is dropped.
pub struct Keeper {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Keeper {
    /// Starts `program`, whose data is in the folder `data`. `signal` stops it.
    pub fn start(program: &Command, data: &Path, signal: &str) -> Result<Self, String> {
        let mut command = Command::new("sh");
        command.args(["-c", UNTIL_PARENT_ENDS, "sh"]).arg(data).arg(signal);
        command.arg(program.get_program()).args(program.get_args());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        own_group(&mut command);
        let mut shell = command.spawn().map_err(|error| format!("sh: {error}"))?;
        let input = shell.stdin.take();
        Ok(Self { shell, input })
    }

    /// Fails if the service has ended.
    pub fn check(&mut self) -> Result<(), String> {
        match self.shell.try_wait().map_err(|error| error.to_string())? {
            Some(ended) => Err(format!("it ended ({ended})")),
            None => Ok(()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.shell.wait();
    }
}

/// Puts the process in a group of its own. A Ctrl-C reaches only this program; its services then stop cleanly because their input ends.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

/// Returns a port that nothing listens on. Another process may take it before the service does; then the service ends with an error.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Pauses between two polls.
pub fn pause() {
    let (_sender, receiver) = channel::<()>();
    let waited = receiver.recv_timeout(PAUSE);
    debug_assert_eq!(waited, Err(RecvTimeoutError::Timeout));
}
