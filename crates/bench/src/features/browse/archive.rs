//! Measures an archive of Parquet files, beside an export of the same events as JSON lines: rates, and the size of both on disk. First,
//! it measures how long a rule takes to change the expiry dates of all events.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use annals::SystemClock;
use annals_core::archive::{Archive, ArchiveFiles, ArchiveTarget, RetentionBody};
use annals_core::browse::{Browse, BrowseQuery, ViewSwitch, json_line};
use annals_core::{Clock, DEFAULT_TENANT, Sleep, Timestamp};
use annals_runtime::{ArchiveFolder, Host, HostOptions};

use super::super::{Arguments, Places, commit_all, text, until};
use crate::row::{self, Target};

/// The system's clock two days ahead: everything that was stored today is due under a rule of one day.
#[derive(Debug)]
struct InTwoDays;

const TWO_DAYS: Duration = Duration::from_secs(2 * 24 * 60 * 60);

impl Clock for InTwoDays {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus(TWO_DAYS)
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move { SystemClock.sleep(at.since(self.now())).await })
    }

    fn sleep(&self, time: Duration) -> Sleep<'_> {
        Box::pin(async move { SystemClock.sleep(time).await })
    }
}

pub async fn measure(backend: &str, places: &Places<'_>, arguments: &Arguments) -> Result<(), String> {
    let store = places.open(backend, "archived").await?;
    let folder = places.folder.join(format!("archive-{backend}"));
    std::fs::create_dir_all(&folder).map_err(text)?;
    let files: Arc<dyn ArchiveFiles> = Arc::new(ArchiveFolder::new(&folder));
    let options = HostOptions { archive: Some(Arc::clone(&files)), ..HostOptions::default() };
    let host = Host::start(Arc::clone(&store), options);
    let browse = host.browse(DEFAULT_TENANT).map_err(text)?;
    super::switch(&*browse, ViewSwitch::On).await?;
    commit_all(&*store, "a", arguments.events, super::event).await?;
    super::behind(&*browse).await?;
    let began = Instant::now();
    let lines = places.folder.join(format!("{backend}.jsonl.gz"));
    let packed = export(&*browse, &lines).await?;
    let exported = arguments.events as f64 / (began.elapsed() - packed).as_secs_f64();
    let ruled = rule(&*host.archive(DEFAULT_TENANT).map_err(text)?).await?;
    host.drain().await;
    let name = format!("{backend}: a rule of the type is applied to all events of the view");
    row::figure(name, "s", ruled.as_secs_f64(), Target::Unset);

    let options = HostOptions { clock: Arc::new(InTwoDays), archive: Some(files), ..HostOptions::default() };
    let host = Host::start(Arc::clone(&store), options);
    let archive = host.archive(DEFAULT_TENANT).map_err(text)?;
    let began = Instant::now();
    host.start_defined();
    let has_all = || async {
        let status = archive.rules(None, 1).await.map_err(text)?.archive;
        match status.failing {
            Some(failing) => Err(failing.reason),
            None => Ok(status.archived >= arguments.events),
        }
    };
    until("the archive", Duration::from_millis(5), has_all).await?;
    let archived = arguments.events as f64 / began.elapsed().as_secs_f64();
    let (parquet, gzip) = (size(&folder)?, size(&lines)?);
    let name = format!("{backend}: archive as Parquet ÷ export as JSON lines");
    row::ratio(name, "events/s", archived, exported, Target::AtLeast(0.5));
    let name = format!("{backend}: size of the Parquet archive ÷ gzip of the lines");
    row::ratio(name, "bytes", parquet as f64, gzip as f64, Target::AtMost(1.0));
    host.drain().await;
    store.close().await;
    Ok(())
}

/// Sets a rule by which all events are archived tomorrow, and waits until none of them expires earlier.
async fn rule(archive: &dyn Archive) -> Result<Duration, String> {
    let began = Instant::now();
    archive.put_rule("order_placed", RetentionBody::new(Some(1), ArchiveTarget::Files)).await.map_err(text)?;
    let is_settled = || async { Ok::<_, String>(archive.rules(None, 1).await.map_err(text)?.archive.settled) };
    until("the rule", Duration::from_millis(5), is_settled).await?;
    Ok(began.elapsed())
}

/// Exports everything as JSON lines through gzip. Returns the time that was spent waiting for gzip.
async fn export(browse: &dyn Browse, into: &Path) -> Result<Duration, String> {
    let file = std::fs::File::create(into).map_err(text)?;
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(file).spawn().map_err(text)?;
    let mut pipe = gzip.stdin.take().ok_or("gzip takes nothing")?;
    let (mut query, mut packing) = (BrowseQuery { limit: 1_000, ..BrowseQuery::default() }, Duration::ZERO);
    loop {
        let (rows, cursor) = browse.rows(query.clone()).await.map_err(text)?;
        let lines: String = rows.iter().map(|row| json_line(row)).collect();
        let began = Instant::now();
        pipe.write_all(lines.as_bytes()).map_err(text)?;
        packing += began.elapsed();
        match cursor {
            Some(_) => query.cursor = cursor,
            None => break,
        }
    }
    drop(pipe);
    let began = Instant::now();
    let ended = gzip.wait().map_err(text)?;
    if ended.success() { Ok(packing + began.elapsed()) } else { Err(format!("gzip: {ended}")) }
}

/// Returns the size of a file, or of all files in a folder, in bytes.
fn size(place: &Path) -> Result<u64, String> {
    if place.is_file() {
        return Ok(place.metadata().map_err(text)?.len());
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(place).map_err(text)? {
        bytes += size(&entry.map_err(text)?.path())?;
    }
    Ok(bytes)
}
