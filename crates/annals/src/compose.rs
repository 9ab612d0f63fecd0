//! Opens a store by URL. This is the only place that names an adapter.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "runtime")]
use annals_core::archive::ArchiveFiles;
use annals_core::queue::QueueBackend;
use annals_core::{Broker, Code, DEFAULT_TENANT, OpenError, Store, TopicSettings};
use annals_embedded::disk::{Disk, MemoryDisk, RealDisk};
use annals_embedded::{EmbeddedStore, Options, STORE_FILE};
use annals_system::sleep;
use futures_util::future::{BoxFuture, FutureExt};

/// The forms of a store URL, for messages.
const STORES: &str = "embedded:PATH, for example embedded:./data, or memory:, or mongodb://HOST/DATABASE";

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The tenants; each has a store of its own. By default only `default`.
    pub tenants: Vec<String>,
    /// The scopes that every tenant has besides `default`.
    pub scopes: Vec<String>,
    /// Refuses a store that does not exist instead of creating it. An existing folder without a `store.json` is refused as well, so that
    /// an unmounted disk never looks like an empty store.
    pub must_exist: bool,
    /// The reasons for which a store that cannot be opened for writing is opened read-only instead: `store_read_only` for a folder or a
    /// mount that is not writable, `disk_full` for a disk without enough room to open it. Nothing is written then, and writes are refused
    /// with `store_read_only`. By default such a store is refused.
    pub read_only_on: &'static [Code],
    /// The free disk space, in bytes, below which commits are refused with `disk_full` while reads continue. 64 MiB by default; 0 for no
    /// limit.
    pub min_free_disk_bytes: u64,
    /// Options of a store on MongoDB. `tenants` above lists its tenants; here, only their databases may be named.
    #[cfg(feature = "mongodb")]
    pub mongodb: annals_mongodb::Options,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            tenants: vec![DEFAULT_TENANT.to_owned()],
            scopes: Vec::new(),
            must_exist: false,
            read_only_on: &[],
            min_free_disk_bytes: 64 * 1024 * 1024,
            #[cfg(feature = "mongodb")]
            mongodb: annals_mongodb::Options::default(),
        }
    }
}

/// Opens the store at `url` with one tenant, and creates it if it does not exist.
///
/// - `embedded:PATH`: the folder PATH, absolute or relative to the working directory. One process at a time can open it.
/// - `memory:`: a new, empty store in the memory of this process, with the same code.
/// - `mongodb://…/DATABASE` and `mongodb+srv://…`: a MongoDB replica set, with the feature `mongodb` of this crate. Any number of
///   processes can open it. Transactions and append conditions are refused with `not_supported_by_store`.
///
/// # Errors
/// `invalid_config` for a URL that is not one of these; `store_locked`, `newer_format`, `not_a_store`, `store_read_only`, `store_damaged`
/// or `read_failed` for a folder that cannot be opened; `unsuitable_server` or `unreachable` for a MongoDB.
pub fn open(url: &str) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    open_with(url, OpenOptions::default())
}

/// Opens the store at `url` with the tenants and scopes of `options`.
///
/// # Errors
/// As [`open`].
pub fn open_with(url: &str, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    opened(url, options).boxed()
}

async fn opened(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
    Ok(typed(adapter(url, options).await?))
}

/// Wraps a store so that commits are checked against the registry of event types.
#[cfg(feature = "runtime")]
fn typed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(annals_runtime::types::TypedStore::new(store, Arc::new(annals_system::SystemClock)))
}

#[cfg(not(feature = "runtime"))]
fn typed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    store
}

async fn adapter(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
    let mut new_in = None;
    let disk: Arc<dyn Disk> = match Backend::parse(url)? {
        Backend::Memory => Arc::new(MemoryDisk::default()),
        Backend::Embedded(path) => {
            if lacks_store(Path::new(path)) {
                if options.must_exist {
                    return Err(no_store(path));
                }
                new_in = Some(path.to_owned());
            }
            Arc::new(RealDisk::new(path))
        }
        Backend::MongoDb(url) => return open_mongodb(url, options).await,
    };
    let OpenOptions { tenants, scopes, min_free_disk_bytes, read_only_on, .. } = options;
    let options = Options { tenants, scopes, min_free_disk_bytes, ..Options::default() };
    let opened = tokio::task::spawn_blocking(move || open_embedded(disk, options, read_only_on)).await;
    let store = match opened {
        Ok(store) => store?,
        Err(error) => return Err(OpenError::new(Code::Internal, format!("opening {url} ended early: {error}"))),
    };
    if let Some(folder) = new_in {
        tracing::info!(
            folder,
            "created a new store, because the folder held none; if a store was expected there, stop this process and mount its disk"
        );
    }
    Ok(Arc::new(store))
}

/// Returns whether the folder is absent or has no file that identifies a store. A folder that this process may not inspect does not count
/// as lacking one: opening it reports why it cannot be opened.
fn lacks_store(folder: &Path) -> bool {
    !folder.is_dir() || matches!(folder.join(STORE_FILE).try_exists(), Ok(false))
}

fn no_store(path: &str) -> OpenError {
    let message = match Path::new(path).is_dir() {
        true => format!(
            "there is no store at {path}: the folder holds no {STORE_FILE}; if the store is on a disk of its own, \
             mount it there; otherwise correct the URL, or commit something first"
        ),
        false => format!("there is no store at {path}; correct the URL, or commit something first"),
    };
    OpenError::new(Code::NotAStore, message)
}

fn open_embedded(disk: Arc<dyn Disk>, options: Options, read_only_on: &[Code]) -> Result<EmbeddedStore, OpenError> {
    match EmbeddedStore::open(disk.clone(), options.clone()) {
        Err(error) if read_only_on.contains(&error.code) => EmbeddedStore::open_to_read(disk, options, &error.message),
        opened => opened,
    }
}

/// The delay between attempts to open a store whose server does not answer. Each attempt itself waits for the server for several seconds.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Opens the store like [`open_with`], and retries for as long as its database is unreachable. Calls `tell` with the reason before each
/// retry. Dropping the future cancels it.
///
/// # Errors
/// As [`open`], except `unreachable`.
pub async fn open_once_reachable(
    url: &str,
    options: OpenOptions,
    tell: impl Fn(&OpenError),
) -> Result<Arc<dyn Store>, OpenError> {
    loop {
        match open_with(url, options.clone()).await {
            Err(error) if error.code == Code::Unreachable => tell(&error),
            opened => return opened,
        }
        sleep(BETWEEN_TRIES).await;
    }
}

#[cfg(feature = "mongodb")]
async fn open_mongodb(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
    let options = mongodb_options(options);
    Ok(Arc::new(annals_mongodb::MongoStore::open(url, options).await?))
}

#[cfg(feature = "mongodb")]
fn mongodb_options(options: OpenOptions) -> annals_mongodb::Options {
    let OpenOptions { tenants, scopes, must_exist, mongodb, .. } = options;
    let with_databases = |name: String| {
        let known = mongodb.tenants.iter().find(|tenant| tenant.name == name);
        known.cloned().unwrap_or_else(|| annals_mongodb::Tenant::new(name))
    };
    let tenants = tenants.into_iter().map(with_databases).collect();
    annals_mongodb::Options { tenants, scopes, must_exist, ..mongodb }
}

/// Returns the options for adopting the database at `url`, which must be a MongoDB.
#[cfg(feature = "mongodb")]
pub(crate) fn mongodb_to_adopt(url: &str, options: OpenOptions) -> Result<annals_mongodb::Options, OpenError> {
    match Backend::parse(url)? {
        Backend::MongoDb(_) => Ok(mongodb_options(options)),
        _ => {
            let message =
                format!("{url} is not on MongoDB; only a database on MongoDB that other software wrote can be adopted");
            Err(OpenError::new(Code::NotSupportedByStore, message))
        }
    }
}

#[cfg(not(feature = "mongodb"))]
async fn open_mongodb(_: &str, _: OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
    let message = "this program was built without MongoDB; build it with the feature `mongodb` of the crate annals";
    Err(OpenError::new(Code::NotSupportedByStore, message))
}

/// Opens the broker at `url` for a tenant whose topics have these names and settings. Returns `None` for `embedded`, where topics are
/// views of the log and nothing is published.
///
/// - `kafka://HOST:PORT,HOST:PORT`: a Kafka cluster, with the feature `kafka` of this crate. It connects on first use, so the cluster may
///   be down when a program starts.
///
/// # Errors
/// `invalid_config` for a URL that is not one of these; `not_supported_by_store` in a program that was built without Kafka.
pub fn open_broker(url: &str, topics: TopicSettings) -> Result<Option<Arc<dyn Broker>>, OpenError> {
    match url.split_once(':') {
        None if url == "embedded" => Ok(None),
        Some(("kafka", _)) => open_kafka(url, topics).map(Some),
        _ => {
            let message = format!("{url:?} is not a broker; a broker is embedded, or kafka://HOST:PORT,HOST:PORT");
            Err(OpenError::new(Code::InvalidConfig, message))
        }
    }
}

#[cfg(feature = "kafka")]
fn open_kafka(url: &str, settings: TopicSettings) -> Result<Arc<dyn Broker>, OpenError> {
    let options = annals_kafka::KafkaOptions { settings, replication: None };
    Ok(Arc::new(annals_kafka::KafkaBroker::open(url, options)?))
}

#[cfg(not(feature = "kafka"))]
fn open_kafka(_: &str, _: TopicSettings) -> Result<Arc<dyn Broker>, OpenError> {
    let message = "this program was built without Kafka; build it with the feature `kafka` (cargo build --release --features kafka)";
    Err(OpenError::new(Code::NotSupportedByStore, message))
}

/// Opens the backend that holds the items of work queues at `url`. Returns `None` for `embedded`, where they are records of the store.
///
/// - `redis://HOST:PORT`, `redis://:PASSWORD@HOST:PORT/DATABASE`: a Redis server, with the feature `redis` of this crate. It connects on
///   first use, so the server may be down when a program starts.
///
/// # Errors
/// `invalid_config` for a URL that is not one of these; `not_supported_by_store` in a program that was built without Redis.
pub fn open_queue(url: &str) -> Result<Option<Arc<dyn QueueBackend>>, OpenError> {
    match url.split_once(':') {
        None if url == "embedded" => Ok(None),
        Some(("redis", rest)) if rest.starts_with("//") => open_redis(url).map(Some),
        _ => {
            let shown = shown_url(url);
            let message = format!("{shown:?} cannot hold work queues; write embedded, or redis://HOST:PORT");
            Err(OpenError::new(Code::InvalidConfig, message))
        }
    }
}

#[cfg(feature = "redis")]
fn open_redis(url: &str) -> Result<Arc<dyn QueueBackend>, OpenError> {
    Ok(Arc::new(annals_redis::RedisQueues::open(url, Arc::new(annals_system::SystemClock))?))
}

#[cfg(not(feature = "redis"))]
fn open_redis(_: &str) -> Result<Arc<dyn QueueBackend>, OpenError> {
    let message = "this program was built without Redis; build it with the feature `redis` (cargo build --release --features redis)";
    Err(OpenError::new(Code::NotSupportedByStore, message))
}

/// Opens the location of archive files. Returns `None` for an empty string.
///
/// - `PATH`: a folder, absolute or relative to the working directory.
/// - `s3://BUCKET/PREFIX`: a bucket on S3, or on a server with an S3-compatible API, with the feature `s3` of this crate. It connects on
///   first use. Settings and credentials come from the variables of AWS's own programs, for example `AWS_ACCESS_KEY_ID`,
///   `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and `AWS_ENDPOINT`, or from a web identity, a container or an instance. Neither `~/.aws` nor
///   `AWS_PROFILE` is read.
///
/// # Errors
/// `invalid_config` for a URL that is not one of these; `not_supported_by_store` in a program that was built without S3.
#[cfg(feature = "runtime")]
pub fn open_archive(place: &str) -> Result<Option<Arc<dyn ArchiveFiles>>, OpenError> {
    match place.split_once("://") {
        None if place.is_empty() => Ok(None),
        None => Ok(Some(Arc::new(annals_runtime::ArchiveFolder::new(place)))),
        Some(("s3", _)) => open_bucket(place).map(Some),
        Some(_) => {
            let shown = shown_url(place);
            let message = format!("{shown:?} cannot hold archive files; write a folder, or s3://BUCKET/PREFIX");
            Err(OpenError::new(Code::InvalidConfig, message))
        }
    }
}

#[cfg(feature = "s3")]
fn open_bucket(url: &str) -> Result<Arc<dyn ArchiveFiles>, OpenError> {
    Ok(Arc::new(crate::client::BucketFiles::open(url)?))
}

#[cfg(all(feature = "runtime", not(feature = "s3")))]
fn open_bucket(_: &str) -> Result<Arc<dyn ArchiveFiles>, OpenError> {
    let message =
        "this program was built without S3; build it with the feature `s3` (cargo build --release --features s3)";
    Err(OpenError::new(Code::NotSupportedByStore, message))
}

/// Returns the URL for display, without the password and other secrets that a MongoDB or Kafka URL may contain.
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may contain characters that should have been encoded, such as `@` and `/`. When in doubt, hide more.
    let credentials = rest.rsplit_once('@').filter(|(user, _)| user.contains(':') || !user.contains('/'));
    let shown = match credentials {
        Some((user, place)) => {
            let name = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{name}:***@{place}")
        }
        None => url.to_owned(),
    };
    const SECRET: [&str; 8] = [
        "authmechanismproperties",
        "proxypassword",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "tlscertificatekeyfilepassword",
    ];
    let Some((place, query)) = shown.split_once('?') else { return shown };
    let hide = |option: &str| match option.split_once('=') {
        Some((name, _)) if SECRET.contains(&&*name.to_ascii_lowercase()) => format!("{name}=***"),
        _ => option.to_owned(),
    };
    let options: Vec<String> = query.split('&').map(hide).collect();
    format!("{place}?{}", options.join("&"))
}

/// Returns the folder of a store, for operations on a store that no process has open.
pub(crate) fn folder(url: &str) -> Result<Arc<dyn Disk>, OpenError> {
    match Backend::parse(url)? {
        Backend::Embedded(path) => Ok(Arc::new(RealDisk::new(path))),
        Backend::Memory => {
            let message = "memory: has no files; name a store with embedded:PATH";
            Err(OpenError::new(Code::InvalidConfig, message))
        }
        Backend::MongoDb(_) => {
            let message = "a store on MongoDB has no files of its own; use the tools of MongoDB, or name a store with embedded:PATH";
            Err(OpenError::new(Code::NotSupportedByStore, message))
        }
    }
}

#[derive(Debug, PartialEq)]
enum Backend<'a> {
    Memory,
    Embedded(&'a str),
    MongoDb(&'a str),
}

impl<'a> Backend<'a> {
    fn parse(url: &'a str) -> Result<Self, OpenError> {
        let refuse = |message: String| Err(OpenError::new(Code::InvalidConfig, message));
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return refuse(format!(
                "{url:?} is not a store URL; for a folder write embedded:PATH (a store is {STORES})"
            ));
        };
        match (scheme, rest) {
            ("embedded", "") => refuse("embedded: names no folder; write embedded:./data".to_owned()),
            ("embedded", path) => Ok(Self::Embedded(path)),
            ("memory", "") => Ok(Self::Memory),
            ("mongodb" | "mongodb+srv", rest) if rest.starts_with("//") => Ok(Self::MongoDb(url)),
            ("mongodb" | "mongodb+srv", _) => {
                refuse(format!("{url:?}: two slashes are missing; write {scheme}://HOST/DATABASE"))
            }
            ("memory", _) => refuse(format!("{url:?}: memory: takes nothing after the colon")),
            ("http" | "https", _) => refuse(format!(
                "{url:?} is a server, not a store: on the command line use --server, in a program annals::Client (a store is {STORES})"
            )),
            _ => refuse(format!("{url:?}: there is no store of scheme {scheme:?}; a store is {STORES}")),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_folder_or_memory() {
        assert_eq!(Backend::parse("embedded:./data"), Ok(Backend::Embedded("./data")));
        assert_eq!(Backend::parse("embedded:/var/lib/a:b"), Ok(Backend::Embedded("/var/lib/a:b")));
        assert_eq!(Backend::parse("memory:"), Ok(Backend::Memory));
        let url = "mongodb+srv://eva:secret@cluster.example.org/shop";
        assert_eq!(Backend::parse(url), Ok(Backend::MongoDb(url)));
    }

    #[test]
    fn anything_else_is_refused_with_what_to_write() {
        for (url, says) in [
            ("./data", "embedded:PATH"),
            ("./a:b", "embedded:PATH"),
            ("", "embedded:PATH"),
            ("embedded:", "embedded:./data"),
            ("memory:x", "nothing after the colon"),
            ("http://127.0.0.1:4000", "--server"),
            ("https://example.org", "--server"),
            ("ftp://x", "embedded:PATH"),
            ("mongodb:x", "mongodb://HOST"),
            ("mongodb+srv:x", "mongodb+srv://HOST"),
        ] {
            let error = Backend::parse(url).expect_err(url);
            assert_eq!(error.code, Code::InvalidConfig, "{url}");
            assert!(error.message.contains(says), "{url}: {}", error.message);
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("mongodb://eva:s3cr3t@a:1,b:2/shop?w=majority", "mongodb://eva:***@a:1,b:2/shop?w=majority"),
            ("mongodb://eva:s3@cr3t@a/shop", "mongodb://eva:***@a/shop"),
            ("mongodb://eva:s3/cr3?t@a/shop", "mongodb://eva:***@a/shop"),
            (
                "mongodb://a/shop?tls=true&tlsCertificateKeyFilePassword=s3&w=majority",
                "mongodb://a/shop?tls=true&tlsCertificateKeyFilePassword=***&w=majority",
            ),
            ("mongodb://localhost/shop?x=a@b", "mongodb://localhost/shop?x=a@b"),
            ("kafka://a:1?sasl.username=eva&sasl.password=s3", "kafka://a:1?sasl.username=eva&sasl.password=***"),
            ("embedded:./a:b@c", "embedded:./a:b@c"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }

    #[test]
    fn a_broker_is_embedded_or_a_kafka() {
        let open = |url: &str| open_broker(url, TopicSettings::default()).map(|broker| broker.is_some());
        assert_eq!(open("embedded"), Ok(false));
        assert_eq!(open("redis://a:1").map_err(|error| error.code), Err(Code::InvalidConfig));
        let kafka = open("kafka://127.0.0.1:9092").map_err(|error| error.code);
        assert_eq!(kafka, if cfg!(feature = "kafka") { Ok(true) } else { Err(Code::NotSupportedByStore) });
    }

    #[test]
    fn work_queues_are_embedded_or_on_a_redis() {
        let open = |url: &str| open_queue(url).map(|queues| queues.is_some()).map_err(|error| error.code);
        assert_eq!(open("embedded"), Ok(false));
        for wrong in ["kafka://a:1", "redis:a", "memory:", "./data"] {
            assert_eq!(open(wrong), Err(Code::InvalidConfig), "{wrong}");
        }
        let redis = open("redis://:s3cr3t@127.0.0.1:6379/1");
        assert_eq!(redis, if cfg!(feature = "redis") { Ok(true) } else { Err(Code::NotSupportedByStore) });
        let refused = open_queue("valkey://:s3cr3t@a").err().expect("refused");
        assert!(!refused.message.contains("s3cr3t"), "{refused}");
    }

    #[test]
    #[cfg(feature = "runtime")]
    fn files_of_the_archive_are_in_a_folder_or_a_bucket() {
        let open = |place: &str| {
            let opened = open_archive(place).map_err(|error| error.code);
            opened.map(|files| files.map(|files| files.place()))
        };
        assert_eq!(open(""), Ok(None));
        assert_eq!(open("./archive"), Ok(Some("./archive".to_owned())));
        assert_eq!(open("gs://events"), Err(Code::InvalidConfig));
        let bucket =
            if cfg!(feature = "s3") { Ok(Some("s3://events/a".to_owned())) } else { Err(Code::NotSupportedByStore) };
        assert_eq!(open("s3://events/a"), bucket);
        let refused = open_archive("ftp://ada:s3cr3t@events").err().expect("refused");
        assert!(!refused.message.contains("s3cr3t"), "{refused}");
    }

    #[tokio::test]
    async fn a_store_that_must_exist_is_not_created() {
        let path = std::env::temp_dir().join("annals-store-that-nobody-made");
        let options = OpenOptions { must_exist: true, ..OpenOptions::default() };
        let error = open_with(&format!("embedded:{}", path.display()), options).await.err().expect("refused");
        assert_eq!(error.code, Code::NotAStore);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_empty_folder_is_not_taken_for_a_store_that_must_exist() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = OpenOptions { must_exist: true, ..OpenOptions::default() };
        let url = format!("embedded:{}", folder.path().display());
        let error = open_with(&url, options).await.err().expect("refused");
        assert_eq!(error.code, Code::NotAStore);
        assert!(error.message.contains("store.json"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
