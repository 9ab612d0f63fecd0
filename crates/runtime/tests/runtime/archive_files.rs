//! The suite of the archive's files, on a folder.

use annals_runtime::ArchiveFolder;

annals_conformance::archive_files!({
    let folder = tempfile::tempdir().expect("a folder");
    // The folder itself is created with the first file.
    (ArchiveFolder::new(folder.path().join("archive")), folder)
});
