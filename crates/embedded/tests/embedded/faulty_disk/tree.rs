//! Files and names, as they are seen and as they are on the disk.

use std::collections::BTreeMap;

pub type FileId = u64;

/// Everything on the disk and in the page cache.
#[derive(Clone, Default)]
pub struct Tree {
    /// Names as processes see them.
    names: BTreeMap<String, FileId>,
    /// Names that are on the disk.
    synced_names: BTreeMap<String, FileId>,
    /// Changes of names that are not on the disk yet, in order.
    unsynced_names: Vec<NameChange>,
    files: BTreeMap<FileId, File>,
    next_id: FileId,
}

#[derive(Clone)]
enum NameChange {
    Link(String, FileId),
    Unlink(String),
    Rename(String, String, FileId),
}

#[derive(Clone, Default)]
struct File {
    /// Bytes as processes see them.
    seen: Vec<u8>,
    /// Bytes that are on the disk.
    synced: Vec<u8>,
    /// Changes that are not on the disk yet, in order.
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// What becomes of each change that was not synced.
#[derive(Clone, Copy)]
pub enum Fate {
    Kept,
    Gone,
    /// Only every so often a piece of it, cut at multiples of this many bytes.
    Torn(usize),
    /// Only its first bytes.
    Cut,
    /// All but a few bytes in the middle.
    Hole,
}

impl NameChange {
    fn dir(&self) -> &str {
        let (Self::Link(path, _) | Self::Unlink(path) | Self::Rename(path, ..)) = self;
        path.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    fn apply(&self, names: &mut BTreeMap<String, FileId>) {
        match self {
            Self::Link(path, id) => {
                names.insert(path.clone(), *id);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
            Self::Rename(from, to, id) => {
                // A name that was given to another file since is not this one's to take away.
                if names.get(from) == Some(id) {
                    names.remove(from);
                }
                names.insert(to.clone(), *id);
            }
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Truncate(length) => bytes.resize(*length, 0),
            Self::Write { offset, bytes: new } => put(bytes, *offset, new),
        }
    }

    fn apply_fate(&self, bytes: &mut Vec<u8>, fate: Fate, random: &mut fastrand::Rng) {
        match (fate, self) {
            (Fate::Kept, change) => change.apply(bytes),
            (Fate::Gone, _) => {}
            // A change of length happens or not.
            (Fate::Torn(_) | Fate::Cut | Fate::Hole, Self::Truncate(_)) => {
                if random.bool() {
                    self.apply(bytes);
                }
            }
            (Fate::Cut, Self::Write { offset, bytes: new }) => put(bytes, *offset, &new[..random.usize(0..=new.len())]),
            (Fate::Hole, Self::Write { offset, bytes: new }) => {
                let from = random.usize(0..=new.len());
                let to = (from + random.usize(1..=64)).min(new.len());
                put(bytes, *offset, &new[..from]);
                put(bytes, offset + to, &new[to..]);
            }
            (Fate::Torn(sector), Self::Write { offset, bytes: new }) => {
                let mut from = 0;
                while from < new.len() {
                    let to = ((offset + from) / sector + 1) * sector - offset;
                    let to = to.min(new.len());
                    if random.bool() {
                        put(bytes, offset + from, &new[from..to]);
                    }
                    from = to;
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    if new.is_empty() {
        return;
    }
    let end = offset + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(new);
}

impl Tree {
    pub fn find(&self, path: &str) -> Option<FileId> {
        self.names.get(path).copied()
    }

    pub fn list(&self, dir: &str) -> Vec<String> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let below = self.names.keys().filter_map(|path| path.strip_prefix(&prefix));
        let mut names: Vec<String> = below.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }

    pub fn used(&self) -> u64 {
        self.names.values().map(|id| self.length(*id)).sum()
    }

    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.names.iter().map(|(path, id)| (path.clone(), self.files[id].seen.clone())).collect()
    }

    pub fn damage(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let file = self.find(path).and_then(|id| self.files.get_mut(&id)).expect("the file is there");
        change(&mut file.seen);
        file.synced = file.seen.clone();
        file.unsynced.clear();
    }

    pub fn read(&self, id: FileId, buffer: &mut [u8], offset: u64) -> usize {
        let seen = &self.files[&id].seen;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
        let count = buffer.len().min(seen.len() - start);
        buffer[..count].copy_from_slice(&seen[start..start + count]);
        count
    }

    pub fn length(&self, id: FileId) -> u64 {
        self.files[&id].seen.len() as u64
    }

    pub fn create(&mut self, path: &str) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, File::default());
        self.change_name(NameChange::Link(path.to_owned(), id));
        id
    }

    pub fn rename(&mut self, from: &str, to: &str, id: FileId) {
        self.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), id));
    }

    pub fn remove(&mut self, path: &str) {
        self.change_name(NameChange::Unlink(path.to_owned()));
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    pub fn write(&mut self, id: FileId, offset: u64, bytes: &[u8]) {
        self.change(id, Change::Write { offset: offset as usize, bytes: bytes.to_vec() });
    }

    pub fn truncate(&mut self, id: FileId, length: u64) {
        self.change(id, Change::Truncate(length as usize));
    }

    fn change(&mut self, id: FileId, change: Change) {
        if let Some(file) = self.files.get_mut(&id) {
            change.apply(&mut file.seen);
            file.unsynced.push(change);
        }
    }

    pub fn sync(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unsynced.drain(..).for_each(|change| change.apply(&mut file.synced));
        }
    }

    /// A sync that failed: some of it reached the disk, and nobody will try the rest again.
    pub fn sync_in_part(&mut self, id: FileId, mut fate: impl FnMut() -> Fate, random: &mut fastrand::Rng) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unsynced.drain(..).for_each(|change| change.apply_fate(&mut file.synced, fate(), random));
        }
    }

    pub fn sync_dir(&mut self, dir: &str) {
        self.sync_dir_in_part(dir, || NameFate::Synced);
    }

    pub fn sync_dir_in_part(&mut self, dir: &str, mut fate: impl FnMut() -> NameFate) {
        let synced = &mut self.synced_names;
        self.unsynced_names.retain(|change| {
            if change.dir() != dir {
                return true;
            }
            match fate() {
                NameFate::Synced => {
                    change.apply(synced);
                    false
                }
                NameFate::Unsynced => true,
                NameFate::Forgotten => false,
            }
        });
    }

    /// What is on the disk, with what became of the changes that were not.
    pub fn without_power(
        &self,
        mut fate: impl FnMut() -> Fate,
        mut keep_name: impl FnMut() -> bool,
        random: &mut fastrand::Rng,
    ) -> Self {
        let mut names = self.synced_names.clone();
        self.unsynced_names.iter().filter(|_| keep_name()).for_each(|change| change.apply(&mut names));
        let mut files = BTreeMap::new();
        for id in names.values() {
            let file = &self.files[id];
            let mut bytes = file.synced.clone();
            file.unsynced.iter().for_each(|change| change.apply_fate(&mut bytes, fate(), random));
            files.insert(*id, File { seen: bytes.clone(), synced: bytes, unsynced: Vec::new() });
        }
        Self { synced_names: names.clone(), names, unsynced_names: Vec::new(), files, next_id: self.next_id }
    }
}

/// What becomes of a change of a name when the sync of its folder fails.
pub enum NameFate {
    Synced,
    Unsynced,
    Forgotten,
}
