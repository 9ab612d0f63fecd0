//! Turns changes into commands, with as many consecutive changes in each as fit.

use annals_core::bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use annals_core::bson::{Bson, Document, RawBson, doc};
use annals_core::{Code, Collection, Invalid, RecordError, Revision};
use mongodb::error::Error;
use mongodb::{ClientSession, Database};

use super::document::is_odd;
use super::judge::Op;
use crate::refused::is_garbled;

/// Approximate limit of the bytes of one command; a larger document is sent alone. The server accepts 16 MiB.
const BYTES_MAX: usize = 12 * 1024 * 1024;
const COUNT_MAX: usize = 5_000;

/// A change that the server refused, and its error.
pub(super) struct Refused {
    pub(super) op: usize,
    pub(super) error: Document,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Insert,
    Update,
    Delete,
}

impl Op {
    fn kind(&self) -> Kind {
        match self {
            Self::Insert { document, .. } if !is_odd(document) => Kind::Insert,
            Self::Insert { .. } | Self::Replace { .. } | Self::Set { .. } | Self::Touch { .. } => Kind::Update,
            Self::Delete { .. } => Kind::Delete,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Insert { document, .. } | Self::Replace { document, .. } => document.as_bytes().len() + 200,
            Self::Set { fields, unset, .. } => {
                let unset: usize = unset.iter().map(|path| path.len() + 10).sum();
                let size = |(path, value): &(String, Bson)| {
                    path.len() + doc! { "": value.clone() }.to_vec().map_or(0, |it| it.len())
                };
                200 + unset + fields.iter().map(size).sum::<usize>()
            }
            Self::Delete { .. } | Self::Touch { .. } => 200,
        }
    }

    fn written(&self) -> Result<RawDocumentBuf, annals_core::bson::error::Error> {
        let mut out = RawDocumentBuf::new();
        match self {
            Self::Insert { document, .. } if !is_odd(document) => return Ok(document.clone()),
            Self::Insert { document, .. } => {
                out.append(cstr!("q"), by_id(super::document::owned_id(document))?);
                out.append(cstr!("u"), as_it_is(document));
                out.append(cstr!("upsert"), true);
            }
            Self::Replace { id, document, .. } => {
                out.append(cstr!("q"), by_id(id.clone())?);
                if is_odd(document) {
                    out.append(cstr!("u"), as_it_is(document));
                } else {
                    out.append(cstr!("u"), document.clone());
                }
            }
            Self::Delete { id, .. } => {
                out.append(cstr!("q"), by_id(id.clone())?);
                out.append(cstr!("limit"), 1_i32);
            }
            Self::Set { id, fields, unset, revision, id_at, .. } => {
                out.append(cstr!("q"), by_id(id.clone())?);
                out.append(cstr!("u"), RawDocumentBuf::try_from(&set(fields, unset, *revision, *id_at))?);
            }
            Self::Touch { id, .. } => {
                out.append(cstr!("q"), by_id(id.clone())?);
                out.append(cstr!("u"), RawDocumentBuf::try_from(&doc! { "$inc": { super::document::CHECKS: 1_i64 } })?);
            }
        }
        Ok(out)
    }
}

fn by_id(id: Bson) -> Result<RawDocumentBuf, annals_core::bson::error::Error> {
    RawDocumentBuf::try_from(&doc! { "_id": { "$eq": id } })
}

/// Returns an update of fields, together with our own field.
fn set(fields: &[(String, Bson)], unset: &[String], revision: Revision, id_at: i32) -> Document {
    let mut set: Document = fields.iter().cloned().collect();
    set.insert(super::document::REVISION, revision.cast_signed());
    let mut gone: Document = unset.iter().map(|path| (path.clone(), Bson::from(""))).collect();
    match id_at {
        0 => gone.insert(super::document::ID_AT, ""),
        at => set.insert(super::document::ID_AT, at),
    };
    doc! { "$set": set, "$unset": gone }
}

/// Returns an update that replaces the whole document without interpreting its content.
fn as_it_is(document: &RawDocumentBuf) -> RawArrayBuf {
    let mut literal = RawDocumentBuf::new();
    literal.append(cstr!("$literal"), document.clone());
    let mut replace = RawDocumentBuf::new();
    replace.append(cstr!("$replaceWith"), literal);
    let mut stages = RawArrayBuf::new();
    stages.push(RawBson::Document(replace));
    stages
}

/// Sorts changes by collection, so that fewer commands are needed. Changes of one collection keep their order: one may free a key of a
/// unique index that a later one takes. All preconditions were evaluated before, so the order of collections affects only which of several
/// refusals comes first.
pub(super) fn by_collection(ops: &mut [(usize, usize, Op)]) {
    ops.sort_by(|(_, _, one), (_, _, other)| one.collection().cmp(other.collection()));
}

/// Sends changes in order. The server aborts the transaction at the first one that it refuses.
pub(super) async fn send(
    database: &Database,
    session: &mut ClientSession,
    ops: &[(usize, usize, Op)],
) -> mongodb::error::Result<Option<Refused>> {
    let mut start = 0;
    while start < ops.len() {
        let end = start + run_of(&ops[start..]);
        let part = &ops[start..end];
        let (verb, list) = match part[0].2.kind() {
            Kind::Insert => (cstr!("insert"), cstr!("documents")),
            Kind::Update => (cstr!("update"), cstr!("updates")),
            Kind::Delete => (cstr!("delete"), cstr!("deletes")),
        };
        let mut entries = RawArrayBuf::new();
        for (_, _, op) in part {
            entries.push(RawBson::Document(op.written().map_err(Error::custom)?));
        }
        let mut command = RawDocumentBuf::new();
        command.append(verb, part[0].2.collection());
        command.append(cstr!("ordered"), true);
        command.append(list, entries);
        let answer = match database.run_raw_command(command).session(&mut *session).await {
            Err(error) if is_garbled(&error) => {
                // Only values refused by a unique index are quoted at such length.
                let message = "a unique index has such a value already; the server's message about it cannot be read";
                return Ok(Some(Refused { op: start, error: doc! { "code": 11000, "errmsg": message } }));
            }
            answer => answer?,
        };
        if let Some(error) =
            answer.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document().cloned())
        {
            let at = error.get_i32("index").ok().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
            return Ok(Some(Refused { op: start + at, error }));
        }
        start = end;
    }
    Ok(None)
}

/// Returns how many changes go into one command.
fn run_of(ops: &[(usize, usize, Op)]) -> usize {
    let first = &ops[0].2;
    let mut bytes = first.bytes();
    let more = ops[1..].iter().take(COUNT_MAX - 1).take_while(|(_, _, op)| {
        bytes += op.bytes();
        bytes <= BYTES_MAX && op.kind() == first.kind() && op.collection() == first.collection()
    });
    1 + more.count()
}

impl Refused {
    /// Returns whether another transaction was first to insert this `_id`.
    pub(super) fn is_overtaken(&self) -> bool {
        let keys = self.error.get_document("keyPattern");
        self.is_duplicate() && keys.is_ok_and(|keys| keys.len() == 1 && keys.contains_key("_id"))
    }

    fn is_duplicate(&self) -> bool {
        self.error.get_i32("code").is_ok_and(|code| code == 11000)
    }

    /// Returns the port's error for the refusal.
    pub(super) fn told(&self, declared: &Collection, change: usize) -> RecordError {
        let message = self.error.get_str("errmsg").unwrap_or("it says nothing");
        if !self.is_duplicate() {
            let message = format!("is not taken by the server: {message}");
            return Invalid::new(Code::InvalidRecord, format!("changes[{change}].document"), message).into();
        }
        let pattern = self.error.get_document("keyPattern").cloned().unwrap_or_default();
        let paths: Vec<&String> = pattern.keys().collect();
        let fits = |index: &&annals_core::Index| {
            index.is_unique() && index.fields().iter().map(|(path, _)| *path).eq(paths.iter().map(|path| path.as_str()))
        };
        // Several may be on the same fields; then the sentence's name decides.
        let named = |index: &&annals_core::Index| message.contains(&format!(" index: {} dup key", index.name()));
        let known = declared.indexes.iter().filter(fits).find(named).or_else(|| declared.indexes.iter().find(fits));
        let by_name = message.split(" index: ").nth(1).and_then(|rest| rest.split(" dup key").next());
        let index = known.map(annals_core::Index::name).or(by_name).unwrap_or("unknown").to_owned();
        let key = self.error.get_document("keyValue").cloned().unwrap_or_default();
        RecordError::DuplicateKey { collection: declared.name.clone(), index, key: Box::new(key), change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(collection: &str, id: i32) -> Op {
        let document = RawDocumentBuf::try_from(&doc! { "_id": id }).expect("encodes");
        Op::Insert { collection: collection.to_owned(), document }
    }

    fn delete(collection: &str, id: i32) -> Op {
        Op::Delete { collection: collection.to_owned(), id: id.into() }
    }

    /// How many operations go into each command.
    fn commands(ops: &[(usize, usize, Op)]) -> Vec<usize> {
        let (mut start, mut sizes) = (0, Vec::new());
        while start < ops.len() {
            sizes.push(run_of(&ops[start..]));
            start += sizes[sizes.len() - 1];
        }
        sizes
    }

    #[test]
    fn changes_that_alternate_between_collections_go_into_one_command_for_each() {
        let mut ops: Vec<_> = (0..10_usize).map(|n| (n, 0, insert(if n % 2 == 0 { "b" } else { "a" }, 1))).collect();
        assert_eq!(commands(&ops), [1; 10]);
        by_collection(&mut ops);
        assert_eq!(commands(&ops), [5, 5]);
        let jobs: Vec<usize> = ops.iter().map(|(job, _, _)| *job).collect();
        assert_eq!(jobs, [1, 3, 5, 7, 9, 0, 2, 4, 6, 8], "each with its own job, and in the order of the jobs");
    }

    #[test]
    fn changes_of_one_collection_stay_in_their_order() {
        let ops = [insert("b", 1), delete("a", 1), delete("b", 1), insert("a", 2), insert("b", 1)];
        let mut ops: Vec<_> = ops.into_iter().enumerate().map(|(change, op)| (0, change, op)).collect();
        by_collection(&mut ops);
        let changes: Vec<usize> = ops.iter().map(|(_, change, _)| *change).collect();
        assert_eq!(changes, [1, 3, 0, 2, 4]);
        assert_eq!(commands(&ops), [1; 5], "a record is inserted, deleted and inserted again");
    }
}
