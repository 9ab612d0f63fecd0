//! Buckets in memory, and on an S3 server.

use std::sync::atomic::{AtomicUsize, Ordering};

use annals_conformance::ManualClock;
use annals_conformance::model::EPOCH;
use annals_core::archive::{ArchiveTarget, RetentionBody};
use annals_core::browse::BrowseQuery;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_embedded::disk::MemoryDisk;
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{Host, HostOptions};
use object_store::memory::InMemory;
use object_store::{PutPayload, PutResult, UploadPart};

use super::*;

const DAY: i64 = 24 * 60 * 60 * 1_000;

annals_conformance::archive_files!((in_memory(""), ()));

mod below_a_prefix {
    use super::in_memory;
    annals_conformance::archive_files!((in_memory("a/b"), ()));
}

fn in_memory(prefix: &str) -> BucketFiles {
    BucketFiles::of(Arc::new(InMemory::new()), prefix, "s3://memory")
}

#[tokio::test]
async fn a_long_file_is_put_in_parts() {
    let (files, content) = (in_memory("annals"), Bytes::from_static(b"0123456789"));
    files.put_in_parts("default/a.parquet", &content, 4).await.expect("put");
    assert_eq!(files.read("default/a.parquet").await, Ok(content));
}

/// An upload of which this many parts succeed, and which then fails.
#[derive(Debug)]
struct CutOff {
    parts: usize,
    aborted: Arc<AtomicUsize>,
}

fn cut_off() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "the connection is gone".into() }
}

#[async_trait]
impl MultipartUpload for CutOff {
    fn put_part(&mut self, _: PutPayload) -> UploadPart {
        let left = self.parts.checked_sub(1);
        self.parts = left.unwrap_or_default();
        Box::pin(async move { left.map(|_| ()).ok_or_else(cut_off) })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        Err(cut_off())
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.aborted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn an_upload_of_which_a_part_or_the_end_fails_is_aborted() {
    let content = Bytes::from_static(b"0123456789");
    for parts in 0..4 {
        let aborted = Arc::new(AtomicUsize::new(0));
        let mut upload = CutOff { parts, aborted: Arc::clone(&aborted) };
        uploaded(&mut upload, &content, 4).await.expect_err("it is cut off");
        assert_eq!(aborted.load(Ordering::SeqCst), 1, "after {parts} parts");
    }
}

#[test]
fn a_place_is_a_bucket_with_or_without_a_prefix() {
    let place = |url: &str| BucketFiles::open(url).map(|files| files.place()).map_err(|error| error.code);
    assert_eq!(place("s3://events/annals/"), Ok("s3://events/annals".to_owned()));
    assert_eq!(place("s3://events"), Ok("s3://events".to_owned()));
    for wrong in
        ["s3://", "s3:///annals", "s3://events/a//b", "s3://events/../b", "s3://key:secret@events", "gs://events"]
    {
        assert_eq!(place(wrong), Err(Code::InvalidConfig), "{wrong}");
    }
}

#[test]
fn a_place_has_no_room_for_secrets() {
    for wrong in
        ["s3://events?key=hidden", "s3://events/a?key=hidden", "s3://events/a#hidden", "s3://key:hidden@events"]
    {
        let refused = BucketFiles::open(wrong).map(|_| ()).expect_err("refused");
        assert_eq!(refused.code, Code::InvalidConfig, "{wrong}");
        assert!(!refused.message.contains("hidden"), "{refused}");
    }
}

#[test]
fn readers_see_the_code_of_a_refusal_and_not_its_body() {
    let shown = |answer: &str| {
        let error = object_store::Error::Generic { store: "S3", source: answer.into() };
        in_memory("").failed("a.parquet", &error).to_string()
    };
    let body = "<Error><Code>AccessDenied</Code><Message>arn:aws:iam::1:user/ada may not</Message></Error>";
    assert_eq!(shown(&format!("403 Forbidden: <?xml version=\"1.0\"?>{body}")), "s3://memory/a.parquet: AccessDenied");
    let page = shown("502 Bad Gateway: <html>10.0.0.7</html>");
    assert_eq!(page, "s3://memory/a.parquet: Generic S3 error: 502 Bad Gateway");
    assert_eq!(shown("no answer"), "s3://memory/a.parquet: Generic S3 error: no answer");
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused_before_a_file_is_renamed_to_it() {
    let files = in_memory("annals");
    let longest = format!("default/{}", "a".repeat(KEY_BYTES_MAX - "annals/default/".len()));
    files.prepare(&longest).await.expect("as long as a key may be");
    files.prepare(&format!("{longest}a")).await.expect_err("one byte longer");
}

/// Archives an event into files, and returns their paths.
async fn archived_into(files: Arc<BucketFiles>) -> Vec<String> {
    let clock = Arc::new(ManualClock::at(EPOCH));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let opened = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options);
    let store: Arc<dyn Store> = Arc::new(opened.expect("it opens"));
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let options = HostOptions { clock: clock.clone(), archive: Some(files.clone()), ..HostOptions::default() };
    let host = Host::start(store, options);
    host.start_defined();
    let archive = host.archive(DEFAULT_TENANT).expect("declared");
    archive.put_rule("default", RetentionBody::new(Some(30), ArchiveTarget::Files)).await.expect("set");
    let data = Data::from_value(&serde_json::json!({ "total": 7 })).expect("a document");
    let commit = NewCommit::new("order", "o-1").event(NewEvent::new("placed", data));
    log.commit(commit).await.expect("committed");
    host.browse(DEFAULT_TENANT).expect("declared").page(BrowseQuery::default()).await.expect("a page");
    clock.advance_millis(32 * DAY);
    let archived = async {
        while archive.rules(None, 1).await.expect("read").archive.archived == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), archived).await.expect("archived in time");
    let listed = archive.files(None, 10).await.expect("listed").items;
    host.drain().await;
    let content = files.read(&format!("{DEFAULT_TENANT}/{}", listed[0].path)).await.expect("read");
    assert_eq!((content.len() as u64, &content[..4]), (listed[0].bytes, &b"PAR1"[..]));
    files.list(DEFAULT_TENANT).await.expect("listed")
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_events_are_an_object_of_a_bucket() {
    let paths = archived_into(Arc::new(in_memory("annals"))).await;
    assert!(paths.len() == 1 && paths[0].starts_with("default/type=placed/day="), "{paths:?}");
}

#[tokio::test]
async fn plain_http_is_refused_unless_it_is_allowed() {
    let settings = AmazonS3Builder::new().with_bucket_name("events").with_endpoint("http://127.0.0.1:9");
    let settings = settings.with_access_key_id("a").with_secret_access_key("b");
    let files = BucketFiles::of(reached(settings).expect("settings"), "", "s3://events");
    let refused = files.read("default/a.parquet").await.expect_err("refused");
    assert!(refused.reason.contains("AWS_ALLOW_HTTP"), "{refused}");
}

/// An S3-compatible server, moto, which keeps buckets in memory.
mod with_python {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::sync::LazyLock;

    use super::*;

    /// Serves until its standard input is closed, which happens when this process ends.
    const SCRIPT: &str = r#"
import sys, boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
s3.create_bucket(Bucket="events")
print(port, flush=True)
sys.stdin.read()
server.stop()
"#;

    struct Server {
        port: u16,
        /// Keeps the write end of its standard input open.
        _child: Child,
    }

    fn start() -> Server {
        let variable =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"));
        let mut command = Command::new(variable("ANNALS_TEST_PYTHON"));
        command.env("PYTHONPATH", variable("ANNALS_TEST_PYTHON_PACKAGES")).args(["-c", SCRIPT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says its port");
        Server { port: line.trim().parse().expect("a port"), _child: child }
    }

    /// Opens a separate prefix of the server's bucket.
    fn on_server() -> BucketFiles {
        static SERVER: LazyLock<Server> = LazyLock::new(start);
        static PARTS: AtomicUsize = AtomicUsize::new(0);
        let settings = AmazonS3Builder::new().with_bucket_name("events").with_region("us-east-1");
        let settings = settings.with_endpoint(format!("http://127.0.0.1:{}", SERVER.port)).with_allow_http(true);
        let settings = settings.with_access_key_id("a").with_secret_access_key("b");
        let prefix = format!("part-{}", PARTS.fetch_add(1, Ordering::SeqCst));
        BucketFiles::of(reached(settings).expect("settings"), &prefix, &format!("s3://events/{prefix}"))
    }

    annals_conformance::archive_files!((on_server(), ()));

    #[tokio::test(flavor = "multi_thread")]
    async fn archived_events_are_an_object_of_a_bucket() {
        let paths = archived_into(Arc::new(on_server())).await;
        assert!(paths.len() == 1 && paths[0].starts_with("default/type=placed/day="), "{paths:?}");
    }
}
