//! Archived events in files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_core::archive::{ArchiveError, ArchiveFiles, ArchiveTarget, EVENTS_ARCHIVE, RetentionBody};
use annals_core::{Clock, Code, DEFAULT_TENANT, Expected};

use crate::Subject;
use crate::archive::memory_files::MemoryFiles;
use crate::archive::opened::{Archived, days_of};

/// The files below a folder that readers see.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        match path.is_dir() {
            true if path.file_name().is_some_and(|name| name == ".writing") => {}
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Two types on one day, one of them on a second day as well.
async fn with_files(subject: &dyn Subject, folder: &Path) -> (Archived, Vec<String>) {
    let it = Archived::with(subject, Some(folder)).await;
    it.rule("default", 30, ArchiveTarget::Files).await;
    let mut ids = Vec::new();
    for event_type in ["placed", "placed", "paid"] {
        ids.push(it.commit(event_type).await);
    }
    it.pass_days(1);
    ids.push(it.commit("placed").await);
    it.pass_days(32);
    it.until(|status| status.archived == 4).await;
    (it, ids)
}

/// Removes an archived event from the view, so that only a file has it.
async fn remove_from_view(it: &Archived, id: &str) {
    // Where its retention has removed it, or removes it meanwhile, there is nothing to do.
    if it.in_view(id).await.is_none() {
        return;
    }
    match it.archive.delete(id, "a test".into()).await {
        Err(ArchiveError::UnknownEvent(_)) => {}
        deleted => {
            deleted.expect("deleted");
            let copy = it.archived().await[0].get("_id").cloned().expect("an id");
            it.it.records.delete_if(EVENTS_ARCHIVE, copy, Expected::Present).await.expect("forgotten");
        }
    }
}

/// The files of the tenant that readers see, and those that they do not see.
async fn seen_and_unseen(files: &MemoryFiles) -> (Vec<String>, Vec<String>) {
    let all = files.list(DEFAULT_TENANT).await.expect("listed");
    all.into_iter().partition(|path| !path.contains("/.writing/"))
}

/// In folders that say both.
pub async fn due_events_become_files_by_type_and_day(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let (it, ids) = with_files(subject, folder.path()).await;
    let listed = it.archive.files(None, 10).await.expect("listed").items;
    let counts: Vec<_> = listed.iter().map(|file| (file.event_type.as_str(), file.events)).collect();
    assert_eq!(counts, [("paid", 1), ("placed", 2), ("placed", 1)]);
    let there = files(&folder.path().join(DEFAULT_TENANT));
    assert_eq!(there.len(), 3);
    for file in &listed {
        let path = folder.path().join(DEFAULT_TENANT).join(&file.path);
        assert!(file.path.starts_with(&format!("type={}/day={}/", file.event_type, file.day)), "{}", file.path);
        let bytes = std::fs::read(&path).expect("the file is there");
        assert_eq!((bytes.len() as u64, &bytes[..4]), (file.bytes, &b"PAR1"[..]));
    }
    // They expire now, or have expired.
    for id in ids {
        if let Some(document) = it.in_view(&id).await {
            assert_eq!(days_of(&document), Some(30));
        }
    }
}

/// Its row stays.
pub async fn an_event_of_a_file_is_restored_from_it(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let (it, ids) = with_files(subject, folder.path()).await;
    remove_from_view(&it, &ids[1]).await;
    let shown = it.archive.restore(&ids[1], "needed".into()).await.expect("restored");
    assert_eq!((shown["event_id"].as_str(), shown["total"].as_i64()), (Some(&*ids[1]), Some(7)));
    // A store with a clock of its own may have removed it again.
    if let Some(document) = it.in_view(&ids[1]).await {
        assert!(days_of(&document).is_some_and(|days| days >= 60), "its retention begins again");
    }
    assert_eq!(files(&folder.path().join(DEFAULT_TENANT)).len(), 3);
}

/// They are archived once it can be.
pub async fn a_folder_that_cannot_be_written_keeps_events_and_is_told(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("archive");
    std::fs::write(&place, "a file where a folder belongs").expect("written");
    let it = Archived::with(subject, Some(&place)).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    let id = it.commit("placed").await;
    it.pass_days(32);
    // An unwritable folder is reported before anything is due.
    let status = it.until(|status| status.failing.is_some() && status.waiting == 1).await;
    assert_eq!(status.archived, 0);
    // A day without an archive.
    it.pass_days(1);
    assert_eq!(it.look().await, 1);
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
    let health = it.it.it.host.health().await.expect("read");
    let of_archive = health.iter().find(|it| it.kind == "archive").expect("a rule archives");
    assert!(of_archive.degraded.as_ref().is_some_and(|why| why.contains("cannot be written")), "{of_archive:?}");
    std::fs::remove_file(&place).expect("removed");
    it.pass_days(1);
    // The count of archived events is stored before the rest of the state is.
    it.until(|status| status.archived == 1 && status.waiting == 0 && status.failing.is_none()).await;
    assert_eq!(files(&place.join(DEFAULT_TENANT)).len(), 1);
}

/// What files hold is in the record of each.
pub async fn a_rebuild_puts_no_event_into_a_second_file(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let (it, _) = with_files(subject, folder.path()).await;
    let before = files(&folder.path().join(DEFAULT_TENANT));
    it.it.browse.rebuild("a test".into()).await.expect("begun");
    it.until(|status| status.archived == 8).await;
    assert_eq!(files(&folder.path().join(DEFAULT_TENANT)), before);
}

/// As after an upload that was cut off and answered all the same. It is seen before any event expires.
pub async fn a_file_that_is_not_stored_whole_keeps_its_events(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    files.lose_the_end(true);
    let it = Archived::with_files(subject, Some(files.clone())).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    let id = it.commit("placed").await;
    it.pass_days(32);
    let status = it.until(|status| status.failing.is_some() && status.waiting == 1).await;
    assert_eq!(status.archived, 0);
    assert!(status.failing.is_some_and(|failing| failing.reason.contains("another length or hash")));
    // What was not whole is deleted. Another look may just have written it again.
    while files.list(DEFAULT_TENANT).await != Ok(Vec::new()) {
        crate::between_looks().await;
    }
    assert!(it.archive.files(None, 10).await.expect("listed").items.is_empty());
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
    files.lose_the_end(false);
    it.pass_days(1);
    it.until(|status| status.archived == 1 && status.waiting == 0 && status.failing.is_none()).await;
    let listed = it.archive.files(None, 10).await.expect("listed").items;
    assert_eq!(files.list(DEFAULT_TENANT).await, Ok(vec![format!("{DEFAULT_TENANT}/{}", listed[0].path)]));
}

/// The restoration is refused, and says which file it is.
pub async fn a_damaged_file_restores_nothing(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    let it = Archived::with_files(subject, Some(files.clone())).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    let id = it.commit("placed").await;
    it.pass_days(32);
    it.until(|status| status.archived == 1).await;
    remove_from_view(&it, &id).await;
    files.damage();
    let refused = it.archive.restore(&id, "needed".into()).await.expect_err("refused");
    assert!(refused.to_string().contains("its length or its hash"), "{refused}");
    assert_eq!(it.in_view(&id).await, None);
    files.damage();
    it.archive.restore(&id, "needed".into()).await.expect("the byte is what it was");
}

/// The events of that file are archived and expire. Others would, too, while readers see no file.
pub async fn a_file_that_cannot_be_renamed_keeps_further_events_in_the_view(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    files.refuse_renames(true);
    let it = Archived::with_files(subject, Some(files.clone())).await;
    it.rule("paid", 30, ArchiveTarget::Files).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    for event_type in ["paid", "placed"] {
        it.commit(event_type).await;
    }
    it.pass_days(32);
    let status = it.until(|status| status.failing.is_some() && status.archived + status.waiting == 2).await;
    assert_eq!((status.archived, status.waiting), (1, 1));
    assert!(status.last_archived.is_some());
    let (seen, unseen) = seen_and_unseen(&files).await;
    assert_eq!((seen.len(), unseen.len()), (0, 1));
    files.refuse_renames(false);
    it.pass_days(1);
    it.until(|status| status.archived == 2 && status.waiting == 0 && status.failing.is_none()).await;
    let (seen, unseen) = seen_and_unseen(&files).await;
    assert_eq!((seen.len(), unseen.len()), (2, 0));
}

/// With the same place, which it should not have. Nor does it delete what an earlier version or incarnation left.
pub async fn a_store_deletes_no_file_of_another_store(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    let it = Archived::with_files(subject, Some(files.clone())).await;
    let identity = it.it.it.store.identity(DEFAULT_TENANT).expect("declared");
    let written_by = |store: &str| format!("{DEFAULT_TENANT}/.writing/{store}/a.parquet");
    let own = written_by(&format!("{}-{}", identity.store_id.simple(), identity.incarnation));
    let next = written_by(&format!("{}-{}", identity.store_id.simple(), identity.incarnation + 1));
    let others = [format!("{DEFAULT_TENANT}/.writing/a.parquet"), written_by("another-0"), next];
    for path in others.iter().chain([&own]) {
        files.put(path, "PAR1".into()).await.expect("put");
    }
    it.rule("placed", 30, ArchiveTarget::Files).await;
    it.commit("placed").await;
    it.pass_days(32);
    it.until(|status| status.archived == 1 && status.failing.is_none()).await;
    let (seen, unseen) = seen_and_unseen(&files).await;
    assert_eq!(seen.len(), 1);
    assert!(!unseen.contains(&own) && others.iter().all(|path| unseen.contains(path)), "{unseen:?}");
}

/// Wherever it was written.
pub async fn a_recorded_file_is_placed_when_no_rule_archives_into_files_any_more(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    let it = Archived::with_files(subject, Some(files.clone())).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    it.commit("placed").await;
    it.pass_days(32);
    it.until(|status| status.archived == 1).await;
    it.archive.remove_rule("placed", "a test".into()).await.expect("removed");
    let (seen, _) = seen_and_unseen(&files).await;
    let name = seen[0].rsplit('/').next().expect("a name");
    files.rename(&seen[0], &format!("{DEFAULT_TENANT}/.writing/{name}")).await.expect("renamed");
    it.pass_days(1);
    while seen_and_unseen(&files).await != (seen.clone(), Vec::new()) {
        crate::between_looks().await;
    }
}

/// And not after the pause that follows a look of a minute.
pub async fn after_an_outage_the_archive_is_written_at_the_next_look(subject: &dyn Subject) {
    let files = MemoryFiles::new();
    let it = Archived::with_files(subject, Some(files.clone())).await;
    it.rule("placed", 30, ArchiveTarget::Files).await;
    it.commit("placed").await;
    files.fail_after_a_minute(it.it.it.clock.clone());
    it.pass_days(32);
    let began = it.it.it.clock.now();
    loop {
        let status = it.archive.rules(None, 10).await.expect("read").archive;
        if status.archived == 1 && status.failing.is_none() {
            break;
        }
        it.it.it.clock.advance_millis(100);
        crate::between_looks().await;
    }
    // A look that takes a minute and is over is followed by the next one after fifty minutes.
    assert!(it.it.it.clock.now().since(began) < Duration::from_secs(45 * 60));
}

/// The rule is refused.
pub async fn files_need_a_folder(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let body = RetentionBody::new(Some(30), ArchiveTarget::Files);
    let refused = it.archive.put_rule("placed", body).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidBody);
    assert!(refused.to_string().contains("server.archive"), "{refused}");
}
