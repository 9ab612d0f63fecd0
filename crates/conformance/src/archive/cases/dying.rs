//! Processes that are killed while they archive events, or while an operator deletes and restores one.

use std::sync::Arc;

use annals_core::archive::{ARCHIVED_MARK, ArchiveFileRecord, ArchiveFiles, ArchiveStateRecord, ArchiveTarget};
use annals_core::{Condition, DEFAULT_TENANT, RecordError, TypedRecords, limits};
use annals_runtime::{ArchiveFolder, HostOptions};

use crate::Subject;
use crate::archive::memory_files::MemoryFiles;
use crate::archive::mortal_files::MortalFiles;
use crate::archive::opened::Archived;
use crate::browse::opened::Browsed;
use crate::mortal::{Life, at_each_write};

/// The prefixes of the collections that a process writes for the view and the archive, besides files.
const STEPS: &[&str] = &["events", "annals-archive"];

/// A batch applies the copies and the expiry dates of their events together, or neither.
pub async fn an_event_is_in_the_archive_whichever_write_of_a_copy_its_process_dies_at(subject: &dyn Subject) {
    let it = Killed::with(subject, ArchiveTarget::Collection, MemoryFiles::new(), true).await;
    let kills = at_each_write(STEPS, async |life, run| it.killed_while_archiving(&life, run).await).await;
    assert!(kills >= 4, "a process makes more writes than {kills}");
}

/// The writes to the folder are a file, and then its rename.
pub async fn an_event_is_in_one_file_of_a_folder_whichever_write_its_process_dies_at(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let it = Killed::with(subject, ArchiveTarget::Files, Arc::new(ArchiveFolder::new(folder.path())), true).await;
    let kills = at_each_write(STEPS, async |life, run| it.killed_while_archiving(&life, run).await).await;
    assert!(kills >= 8, "a process makes more writes than {kills}");
}

/// An object store has no rename: a file is copied, and then the original is deleted.
pub async fn an_event_is_in_one_object_of_a_bucket_whichever_write_its_process_dies_at(subject: &dyn Subject) {
    let it = Killed::with(subject, ArchiveTarget::Files, MemoryFiles::new(), false).await;
    let kills = at_each_write(STEPS, async |life, run| it.killed_while_archiving(&life, run).await).await;
    assert!(kills >= 10, "a process makes more writes than {kills}");
}

/// The event is in the view or in the archive, and never in both or in neither.
pub async fn an_event_is_in_one_place_whichever_write_of_a_deletion_its_process_dies_at(subject: &dyn Subject) {
    let it = Killed::with(subject, ArchiveTarget::None, MemoryFiles::new(), true).await;
    let kills = at_each_write(STEPS, async |life, _| it.killed_while_deleting(&life).await).await;
    assert!(kills >= 4, "a process makes more writes than {kills}");
}

/// A store whose processes are killed.
struct Killed {
    /// A host that was drained. It has the store open, and does nothing.
    first: Archived,
    target: ArchiveTarget,
    files: Arc<dyn ArchiveFiles>,
    renames_at_once: bool,
}

impl Killed {
    async fn with(
        subject: &dyn Subject,
        target: ArchiveTarget,
        files: Arc<dyn ArchiveFiles>,
        renames_at_once: bool,
    ) -> Self {
        let first = Archived::with_files(subject, Some(Arc::clone(&files))).await;
        // Without an archive nothing expires: MongoDB's own expiry uses the machine's time, and would act like one more process.
        if target != ArchiveTarget::None {
            first.rule("placed", 30, target).await;
        }
        first.it.it.host.drain().await;
        Self { first, target, files, renames_at_once }
    }

    /// Starts another process, which lives.
    async fn process(&self) -> Archived {
        let options = HostOptions { archive: Some(Arc::clone(&self.files)), ..HostOptions::default() };
        Archived::on(self.first.it.it.store.clone(), self.first.it.it.clock.clone(), options).await
    }

    /// Starts another process, with this life.
    fn mortal(&self, life: &Arc<Life>) -> Browsed {
        let (files, life_of_files) = (Arc::clone(&self.files), Arc::clone(life));
        let files = MortalFiles { files, life: life_of_files, renames_at_once: self.renames_at_once };
        let options = HostOptions { archive: Some(Arc::new(files)), ..HostOptions::default() };
        Browsed::with(life.store(&self.first.it.it.store), self.first.it.it.clock.clone(), options)
    }

    /// Commits an event, and waits until it is in the view and nothing is left to do. Returns its id.
    async fn committed(&self) -> String {
        let before = self.process().await;
        let id = self.meanwhile(before.commit("placed")).await;
        while self.first.in_view(&id).await.is_none()
            || !before.archive.rules(None, 10).await.expect("read").archive.settled
        {
            self.pass_a_moment().await;
        }
        before.it.it.host.drain().await;
        id
    }

    /// Archives an event by a process with this life, and then by one that lives. Returns whether the first one was killed.
    async fn killed_while_archiving(&self, life: &Arc<Life>, run: usize) -> bool {
        let id = self.committed().await;
        self.first.pass_days(33);
        let before = self.state().await;
        let dying = self.mortal(life);
        while !life.is_over() && self.state().await.archived == before.archived {
            self.pass_a_moment().await;
        }
        dying.it.host.drain().await;
        let killed = life.is_over();
        self.has_both_or_neither(&id).await;

        let next = self.process().await;
        while !self.is_archived(&id).await {
            self.pass_a_moment().await;
        }
        next.it.it.host.drain().await;
        self.has_both_or_neither(&id).await;
        self.holds_each_once(run).await;
        killed
    }

    /// Deletes and restores an event in a process with this life, and deletes it in one that lives. Returns whether the first one was
    /// killed.
    async fn killed_while_deleting(&self, life: &Arc<Life>) -> bool {
        let id = self.committed().await;
        let dying = self.mortal(life);
        let archive = dying.it.host.archive(DEFAULT_TENANT).expect("declared");
        let deleted = self.meanwhile(archive.delete(&id, "a mistake".into())).await;
        let restored = match &deleted {
            Ok(_) => self.meanwhile(archive.restore(&id, "it was none".into())).await.map(drop),
            Err(_) => Ok(()),
        };
        let killed = life.is_over();
        assert!(killed || (deleted.is_ok() && restored.is_ok()), "{deleted:?}, {restored:?}");
        dying.it.host.drain().await;
        self.is_in_one_place(&id).await;

        let next = self.process().await;
        if self.first.in_view(&id).await.is_some() {
            self.meanwhile(next.archive.delete(&id, "a mistake".into())).await.expect("deleted");
        }
        next.it.it.host.drain().await;
        assert!(self.first.in_view(&id).await.is_none());
        self.is_in_one_place(&id).await;
        killed
    }

    /// Runs `work` while time passes, because it may wait for the lease of a dead process.
    async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.pass_a_moment() => {}
            }
        }
    }

    /// Lets leases of dead processes end and tasks look again.
    async fn pass_a_moment(&self) {
        self.first.it.it.advance(100);
        crate::between_looks().await;
    }

    async fn state(&self) -> ArchiveStateRecord {
        let typed = TypedRecords::<ArchiveStateRecord>::declared(Arc::clone(&self.first.it.records));
        match typed.get(ArchiveStateRecord::ID).await {
            Err(RecordError::UnknownCollection(_)) => ArchiveStateRecord::default(),
            found => found.expect("read").map(|found| found.value).unwrap_or_default(),
        }
    }

    /// Returns how many copies of an event the collection of the archive has.
    async fn copies(&self, id: &str) -> usize {
        self.first.archived().await.iter().filter(|it| it.get_str("event_id").is_ok_and(|it| it == id)).count()
    }

    async fn file_records(&self) -> Vec<ArchiveFileRecord> {
        let typed = TypedRecords::<ArchiveFileRecord>::declared(Arc::clone(&self.first.it.records));
        let query = TypedRecords::<ArchiveFileRecord>::query().matching(Condition::All).limit(limits::PAGE_MAX);
        match typed.find(query).await {
            Err(RecordError::UnknownCollection(_)) => Vec::new(),
            found => found.expect("read").0.into_iter().map(|found| found.value).collect(),
        }
    }

    /// Returns the files of the tenant that readers see, and those that they do not see.
    async fn files(&self) -> (Vec<String>, Vec<String>) {
        let all = self.files.list(DEFAULT_TENANT).await.expect("listed");
        all.into_iter().partition(|path| !path.contains("/.writing/"))
    }

    /// Returns whether an event is archived as it should be, and nothing is left to do.
    async fn is_archived(&self, id: &str) -> bool {
        match self.target {
            ArchiveTarget::Files => {
                let has_record = self.file_records().await.iter().any(|file| file.first_id == id);
                has_record && self.files().await.1.is_empty()
            }
            _ => self.copies(id).await == 1,
        }
    }

    /// Asserts that an event expires if and only if the archive has it.
    async fn has_both_or_neither(&self, id: &str) {
        // An event that is not in the view has expired.
        let expires = match self.first.in_view(id).await {
            Some(document) => {
                let own = document.get_document("annals").cloned().unwrap_or_default();
                let mark = ARCHIVED_MARK.rsplit('.').next().unwrap_or_default();
                assert_eq!(own.contains_key(mark), document.contains_key("ttl_expires_at"), "{document}");
                document.contains_key("ttl_expires_at")
            }
            None => true,
        };
        let files = self.file_records().await;
        let file = files.iter().find(|file| file.first_id == id);
        assert_eq!(expires, file.is_some() || self.copies(id).await == 1, "{id} expires and is archived, or neither");
        if let Some(file) = file {
            let (seen, unseen) = self.files().await;
            let of_it: Vec<_> = seen.iter().chain(&unseen).filter(|path| path.ends_with(&file.name)).collect();
            assert!(!of_it.is_empty(), "the file of {id} is there");
            for path in of_it {
                let content = self.files.read(path).await.expect("read");
                assert_eq!(content.len() as i64, file.bytes, "{path} is whole");
            }
        }
    }

    /// Asserts that after this many runs readers see every event in one copy.
    async fn holds_each_once(&self, runs: usize) {
        let (files, (seen, unseen)) = (self.file_records().await, self.files().await);
        let mut recorded: Vec<_> = files.iter().map(|file| format!("{DEFAULT_TENANT}/{}", file.path)).collect();
        recorded.sort();
        assert_eq!((recorded, Vec::new()), (seen, unseen), "the files that readers see are those that are recorded");
        let in_files: i64 = files.iter().map(|file| file.events).sum();
        let copied = self.first.archived().await.len();
        assert_eq!(usize::try_from(in_files).expect("a count") + copied, runs, "each event is archived once");
    }

    async fn is_in_one_place(&self, id: &str) {
        let places = (usize::from(self.first.in_view(id).await.is_some()), self.copies(id).await);
        assert!(matches!(places, (1, 0) | (0, 1)), "{id} is in the view and in the archive so often: {places:?}");
    }
}
