//! A service in this process, on the real store.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annals::{AggregateFilter, EventLog, Filter, Follower, LogQuery, RecordedEvent, SequenceNumber, Store, limits};
use annals_example_execution::{AGGREGATE, Error, REQUESTED, STARTED, Settings, TERMINAL, run};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Long enough for a slow machine that does many other things; nothing waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// Fails the test instead of hanging.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

pub async fn memory() -> Arc<dyn Store> {
    annals::open("memory:").await.expect("opens")
}

pub fn log_of(store: &Arc<dyn Store>) -> Arc<dyn EventLog> {
    store.log("default", "default").expect("always there")
}

pub struct Service {
    pub log: Arc<dyn EventLog>,
    pub address: SocketAddr,
    lines: mpsc::UnboundedReceiver<String>,
    running: JoinHandle<Result<(), Error>>,
    stop: oneshot::Sender<()>,
    _work: TempDir,
}

struct Output(mpsc::UnboundedSender<String>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let line = String::from_utf8(bytes.to_vec()).expect("lines are UTF-8");
        assert!(line.ends_with('\n') && line.lines().count() == 1, "one line at a time: {line:?}");
        self.0.send(line.trim_end().to_owned()).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Service {
    pub async fn start(store: &Arc<dyn Store>) -> Self {
        Self::start_with(store, |_| {}).await
    }

    pub async fn start_with(store: &Arc<dyn Store>, change: impl FnOnce(&mut Settings)) -> Self {
        let work = tempfile::tempdir().expect("a folder");
        let (line, mut lines) = mpsc::unbounded_channel();
        let mut settings = Settings::new(Arc::clone(store), "of a test", work.path(), Output(line));
        settings.listen = Some("127.0.0.1:0".parse().expect("an address"));
        settings.submit_samples = false;
        change(&mut settings);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(run(settings, async {
            let _ = stopped.await;
        }));
        let address = within("the address", async {
            loop {
                let line: String = lines.recv().await.expect("it says where it is before it ends");
                if let Some(rest) = line.strip_prefix("Open http://") {
                    break rest.split('/').next().unwrap_or_default().parse().expect("an address");
                }
            }
        });
        let address = address.await;
        // It answers once it has taken up what an earlier run left.
        let page = within("the page", reqwest::get(format!("http://{address}/"))).await.expect("answers");
        assert_eq!(page.status(), 200);
        Self { log: log_of(store), address, lines, running, stop, _work: work }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Submits a program with 10 seconds and 128 MiB, and returns its id.
    pub async fn submit(&self, language: &str, script: &str) -> String {
        self.submit_with(json!({ "language": language, "script": script })).await
    }

    pub async fn submit_with(&self, body: Value) -> String {
        let answer = reqwest::Client::new().post(self.url("/executions")).json(&body).send().await.expect("answers");
        assert_eq!(answer.status(), 201);
        let answer: Value = answer.json().await.expect("JSON");
        answer["execution_id"].as_str().expect("an id").to_owned()
    }

    /// Runs a program and returns the event it ends with.
    pub async fn result_of(&self, language: &str, script: &str) -> Ended {
        let id = self.submit(language, script).await;
        ended(&self.log, &id).await
    }

    /// The next line that holds `text`.
    pub async fn line_with(&mut self, text: &str) -> String {
        within(&format!("a line with {text:?}"), async {
            loop {
                let line = self.lines.recv().await.expect("the service prints");
                if line.contains(text) {
                    return line;
                }
            }
        })
        .await
    }

    /// Sends a request as a user; the answer's status and JSON.
    pub async fn call(&self, user: &str, method: reqwest::Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let request = reqwest::Client::new().request(method, self.url(path));
        let request = request.header("x-user", user).header("accept", "application/json");
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = within(path, request.send()).await.expect("answers");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    }

    /// What `GET` answers as the user of the page.
    pub async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("demo", reqwest::Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Waits until what `GET` answers passes.
    pub async fn until(&self, what: &str, path: &str, passes: impl Fn(&Value) -> bool) -> Value {
        let mut again = tokio::time::interval(Duration::from_millis(20));
        within(what, async {
            loop {
                again.tick().await;
                let answer = self.get(path).await;
                if passes(&answer) {
                    return answer;
                }
            }
        })
        .await
    }

    /// Waits until what `GET` answers, refusals included, passes.
    pub async fn until_answered(&self, what: &str, path: &str, passes: impl Fn(u16, &Value) -> bool) {
        let mut again = tokio::time::interval(Duration::from_millis(20));
        within(what, async {
            loop {
                again.tick().await;
                let (status, answer) = self.call("demo", reqwest::Method::GET, path, None).await;
                if passes(status, &answer) {
                    return;
                }
            }
        })
        .await;
    }

    /// The saga of an execution.
    pub async fn saga(&self, id: &str, passes: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/sagas?execution_id={id}");
        let page = self.until(&format!("the saga of {id}"), &path, |page| passes(&page["items"][0])).await;
        page["items"][0].clone()
    }

    /// Stops it as Ctrl-C would.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        within("the end", self.running).await.expect("does not panic").expect("ends well");
    }

    /// Ends it at once: none of its tasks goes on, nothing is tidied up.
    pub async fn crash(self) {
        self.running.abort();
        assert!(self.running.await.is_err_and(|error| error.is_cancelled()));
    }
}

/// The event that ended an execution.
#[derive(Debug)]
pub struct Ended {
    pub event_type: String,
    pub data: Value,
}

impl Ended {
    pub fn text(&self, field: &str) -> &str {
        self.data[field].as_str().unwrap_or_else(|| panic!("{field} of {self:?} is text"))
    }

    pub fn usage(&self, field: &str) -> f64 {
        self.data["resource_usage"][field].as_f64().unwrap_or_else(|| panic!("{field} of {self:?} is a number"))
    }
}

fn filter(id: &str, types: &[&str]) -> Filter {
    Filter {
        types: types.iter().map(|event_type| (*event_type).into()).collect(),
        aggregate: Some(AggregateFilter { name: AGGREGATE.into(), id: Some(id.into()) }),
        ..Filter::default()
    }
}

async fn first(log: &Arc<dyn EventLog>, filter: Filter) -> RecordedEvent {
    let mut follower = Follower::new(Arc::clone(log), 0, filter);
    follower.next_page().await.expect("can be read").swap_remove(0)
}

/// Waits until an execution has started.
pub async fn started(log: &Arc<dyn EventLog>, id: &str) -> SequenceNumber {
    within(&format!("the start of {id}"), first(log, filter(id, &[STARTED]))).await.sequence_number
}

/// Waits until an execution has an event of one of these types.
pub async fn until(log: &Arc<dyn EventLog>, id: &str, types: &[&str]) -> RecordedEvent {
    within(&format!("{types:?} of {id}"), first(log, filter(id, types))).await
}

/// Waits until an execution has ended.
pub async fn ended(log: &Arc<dyn EventLog>, id: &str) -> Ended {
    let event = within(&format!("the end of {id}"), first(log, filter(id, &TERMINAL))).await;
    Ended { event_type: event.event_type.to_string(), data: event.data.decode().expect("JSON") }
}

/// What happened to an execution, in order: its request, its start and its end.
pub async fn history(log: &Arc<dyn EventLog>, id: &str) -> Vec<String> {
    history_of(log, id, &[&[REQUESTED, STARTED], &TERMINAL[..]].concat()).await
}

/// The events of these types of an execution, in order; of all types if none is named.
pub async fn history_of(log: &Arc<dyn EventLog>, id: &str, types: &[&str]) -> Vec<String> {
    let query = LogQuery { limit: limits::PAGE_MAX, filter: filter(id, types), ..LogQuery::default() };
    let page = log.read(query).await.expect("can be read");
    page.events.iter().map(|event| event.event_type.to_string()).collect()
}
