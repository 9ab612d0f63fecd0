//! The cases.

use annals_core::archive::{ArchiveFiles, file_path};
use bytes::Bytes;

const WRITING: &str = "default/.writing/a.parquet";
const PLACE: &str = "default/type=placed/day=2026-03-01/a.parquet";

fn content(length: usize) -> Bytes {
    (0..length).map(|n| (n % 251) as u8).collect()
}

/// This also holds for an empty file, and for one of several parts.
pub async fn a_file_is_read_as_it_was_put(files: &dyn ArchiveFiles) {
    for length in [0, 1, 9 * 1024 * 1024] {
        files.put(WRITING, content(length)).await.expect("put");
        let read = files.read(WRITING).await.expect("read");
        assert!(read == content(length), "{length} bytes come back as {}", read.len());
    }
}

/// The replacement is shorter.
pub async fn a_file_that_is_put_again_is_replaced(files: &dyn ArchiveFiles) {
    files.put(WRITING, content(100)).await.expect("put");
    files.put(WRITING, content(3)).await.expect("put");
    assert_eq!(files.read(WRITING).await, Ok(content(3)));
    assert_eq!(files.list("default").await, Ok(vec![WRITING.to_owned()]));
}

/// The name of one tenant is a prefix of the other's.
pub async fn files_are_listed_below_their_folder_only(files: &dyn ArchiveFiles) {
    assert_eq!(files.list("default").await, Ok(Vec::new()), "there is no folder yet");
    let other = "default2/.writing/b.parquet";
    for path in [PLACE, other, WRITING] {
        files.put(path, content(1)).await.expect("put");
    }
    assert_eq!(files.list("default").await, Ok(vec![WRITING.to_owned(), PLACE.to_owned()]), "in order, at any depth");
    assert_eq!(files.list("default/.writing").await, Ok(vec![WRITING.to_owned()]));
    assert_eq!(files.list("default2").await, Ok(vec![other.to_owned()]));
}

/// Its content is unchanged.
pub async fn a_renamed_file_has_its_new_path_only(files: &dyn ArchiveFiles) {
    files.put(WRITING, content(10)).await.expect("put");
    files.prepare(PLACE).await.expect("it can be there");
    files.rename(WRITING, PLACE).await.expect("renamed");
    assert_eq!(files.list("default").await, Ok(vec![PLACE.to_owned()]));
    assert_eq!(files.read(PLACE).await, Ok(content(10)));
}

/// The interruption left both files.
pub async fn a_rename_that_was_interrupted_is_completed(files: &dyn ArchiveFiles) {
    files.put(WRITING, content(10)).await.expect("put");
    files.put(PLACE, content(10)).await.expect("put");
    files.rename(WRITING, PLACE).await.expect("renamed");
    assert_eq!(files.list("default").await, Ok(vec![PLACE.to_owned()]));
    assert_eq!(files.read(PLACE).await, Ok(content(10)));
}

/// The first deletion was not answered.
pub async fn a_deleted_file_is_gone_and_is_deleted_once_more(files: &dyn ArchiveFiles) {
    files.put(WRITING, content(10)).await.expect("put");
    for _ in 0..2 {
        files.delete(WRITING).await.expect("deleted");
    }
    assert_eq!(files.list("default").await, Ok(Vec::new()));
    files.read(WRITING).await.expect_err("it is gone");
}

/// The error names the file.
pub async fn a_file_that_does_not_exist_is_neither_read_nor_renamed(files: &dyn ArchiveFiles) {
    let refused = files.read(PLACE).await.expect_err("there is none");
    assert!(refused.place.contains("a.parquet"), "{refused}");
    files.rename(WRITING, PLACE).await.expect_err("there is none");
    assert_eq!(files.list("default").await, Ok(Vec::new()));
}

/// The names have characters that a path or a key may not have.
pub async fn paths_of_types_with_any_name_are_kept(files: &dyn ArchiveFiles) {
    let mut all: Vec<String> = ["a/b", "ü", "50%", "..", "a b*?#&+"]
        .map(|event_type| format!("default/{}", file_path(event_type, 0, "a.parquet").0))
        .into();
    for path in &all {
        files.put(path, path.clone().into()).await.expect("put");
    }
    all.sort();
    assert_eq!(files.list("default").await, Ok(all.clone()));
    for path in &all {
        assert_eq!(files.read(path).await, Ok(path.clone().into()), "{path}");
    }
}
