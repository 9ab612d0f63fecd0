//! The play: orders are placed, the supplier is killed partway and restarted, and the books are compared.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use annals::{Client, Clock, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, SystemClock};

use crate::{Books, Failure, Role};

/// The time limit for every wait.
const WITHIN: Duration = Duration::from_secs(120);
/// How often the books are read.
const EVERY: Duration = Duration::from_millis(100);

/// A party in a process of its own. Dropping it kills the process.
struct Process {
    child: Child,
    client: Client,
    role: Role,
}

impl Process {
    /// Starts this program as a party, and waits until it responds.
    async fn start(role: Role, folder: &Path, ports: (u16, u16)) -> Result<Self, Failure> {
        let (own, other) = ports;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["party", role.name(), "--listen", &format!("127.0.0.1:{own}")]);
        command.arg("--other").arg(format!("http://127.0.0.1:{other}"));
        command.arg("--store").arg(format!("embedded:{}", folder.join(role.name()).display()));
        // A party ends when its input does, so none is left behind when this program is killed.
        let child = command.stdin(Stdio::piped()).spawn()?;
        let client = Client::new(&format!("http://127.0.0.1:{own}"), DEFAULT_TENANT, DEFAULT_SCOPE)?;
        let mut process = Self { child, client, role };
        tokio::time::timeout(WITHIN, async {
            while process.client.head().await.is_err() {
                if let Some(status) = process.child.try_wait()? {
                    return Err(format!("the {} ended: {status}", role.name()).into());
                }
                SystemClock.sleep(EVERY).await;
            }
            Ok::<_, Failure>(())
        })
        .await??;
        Ok(process)
    }

    /// Kills the process with SIGKILL, without any clean shutdown.
    fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    async fn books(&self) -> Result<Books, Failure> {
        Books::read(&self.client, self.role).await
    }

    /// Waits until the books satisfy `is`.
    async fn until(&self, is: impl Fn(&Books) -> bool) -> Result<Books, Failure> {
        let waiting = async {
            loop {
                let books = self.books().await?;
                if is(&books) {
                    return Ok(books);
                }
                SystemClock.sleep(EVERY).await;
            }
        };
        tokio::time::timeout(WITHIN, waiting).await?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Places `orders` orders at the shop, kills the supplier once it has sent a third of the invoices, and restarts it. Returns the books of
/// the shop and of the supplier once the shop has an invoice for every order.
///
/// # Errors
/// When a process cannot be started, or the books are not complete in time.
pub async fn run(folder: &Path, orders: usize, mut say: impl FnMut(&str)) -> Result<(Books, Books), Failure> {
    let (at_shop, at_supplier) = (free_port()?, free_port()?);
    let shop = Process::start(Role::Shop, folder, (at_shop, at_supplier)).await?;
    let supplier = Process::start(Role::Supplier, folder, (at_supplier, at_shop)).await?;
    say(&format!("the shop listens on port {at_shop}, the supplier on port {at_supplier}"));
    let (before, after) = (orders / 2, orders - orders / 2);
    place(&shop, 0..before).await?;
    supplier.until(|books| books.of("invoice").count() * 3 >= before).await?;
    supplier.kill()?;
    say("the supplier is killed");
    place(&shop, before..before + after).await?;
    let supplier = Process::start(Role::Supplier, folder, (at_supplier, at_shop)).await?;
    say("the supplier is started again");
    let of_shop = shop.until(|books| books.of("invoice").count() >= orders).await?;
    let of_supplier = supplier.books().await?;
    Ok((of_shop, of_supplier))
}

/// Places orders, with their numbers as amounts.
async fn place(shop: &Process, numbers: std::ops::Range<usize>) -> Result<(), Failure> {
    for n in numbers {
        let data = Data::from_value(&serde_json::json!({ "what": "tea", "amount": n }))?;
        let commit = NewCommit::new("order", format!("o-{n}")).event(NewEvent::new("order_placed", data));
        shop.client.commit(commit).await?;
    }
    Ok(())
}

/// Returns a port that nothing listens on. Both parties name the other's port in their definitions before either of them runs.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
