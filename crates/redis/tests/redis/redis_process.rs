//! A Redis of a test's own, which it kills and starts again.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Redis {
    child: Option<Child>,
    data: tempfile::TempDir,
    port: u16,
}

impl Redis {
    /// Starts one that keeps whatever it has answered, and waits until it takes connections.
    pub async fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
        let mut redis = Self { child: None, data: tempfile::tempdir().expect("a folder"), port: free.port() };
        redis.start_again().await;
        redis
    }

    pub async fn start_again(&mut self) {
        let program = std::env::var("ANNALS_TEST_REDIS_SERVER").map(PathBuf::from);
        let mut command = Command::new(program.expect("`cargo xtask services redis` prints ANNALS_TEST_REDIS_SERVER"));
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", "", "--appendonly", "yes"]);
        command.args(["--appendfsync", "always", "--dir"]).arg(self.data.path());
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
        let connects = async {
            while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), connects).await.expect("Redis takes connections");
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is killed");
        child.wait().expect("it ended");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
