//! The service alone: `execution-service FOLDER [ADDRESS [ROLE…]]`, for example `execution-service ./annals-demo 127.0.0.1:0`. It submits
//! the samples unless the environment has `NO_SAMPLES`. `STORE`, `BROKER` and `QUEUE` are URLs, `LEASE_SECONDS` is a number, and `PREFIX`
//! is the prefix of topic names. `annals demo` is the same service with options.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use annals::TopicSettings;
use annals::relay::RelayTopics;
use annals::runtime::RelayOptions;
use annals_example_execution::{DemoFolder, Role, Settings, run};

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the only way out for an error of a program")]
            {
                eprintln!("error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder: execution-service FOLDER [ADDRESS]")?;
    let listen = arguments.next().map(|address| address.parse::<SocketAddr>()).transpose()?;
    let roles = arguments.map(|role| role.parse::<Role>()).collect::<Result<std::collections::BTreeSet<_>, _>>()?;
    let folder = DemoFolder::claim(Path::new(&folder), false).await?;
    let url = std::env::var("STORE").unwrap_or_else(|_| folder.store_url());
    let store = annals::open(&url).await?;
    let mut settings = Settings::new(store, annals::shown_url(&url), folder.work(), std::io::stdout());
    if !roles.is_empty() {
        settings.roles = roles;
    }
    if let Ok(seconds) = std::env::var("LEASE_SECONDS") {
        settings.lease = std::time::Duration::from_secs(seconds.parse()?);
    }
    if let Ok(url) = std::env::var("QUEUE") {
        settings.tasks.queues = annals::open_queue(&url)?;
    }
    if let Ok(url) = std::env::var("BROKER") {
        let prefix = std::env::var("PREFIX").unwrap_or_default();
        let topics = TopicSettings { prefix, ..TopicSettings::default() };
        let broker = annals::open_broker(&url, topics.clone())?;
        let topics = RelayTopics { settings: topics, ..RelayTopics::default() };
        settings.broker = broker.map(|broker| (broker, RelayOptions { topics, ..RelayOptions::default() }));
    }
    settings.listen = listen;
    settings.submit_samples = std::env::var_os("NO_SAMPLES").is_none();
    run(settings, asked_to_stop()).await?;
    Ok(())
}

async fn asked_to_stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}
