//! The suite of the places that store files of the archive.

pub mod cases;

use std::time::Duration;

use annals_core::archive::ArchiveFiles;

/// The time limit for a case, after which it counts as stuck.
const CASE_SECONDS_MAX: u64 = 60;

/// Generates one test for every case, with the empty place that the expression creates, and a value that is kept while the case runs:
/// `annals_conformance::archive_files!((MyFiles::new(), ()));`
#[macro_export]
macro_rules! archive_files {
    ($files:expr) => {
        $crate::archive_files! { @cases $files;
            a_file_is_read_as_it_was_put
            a_file_that_is_put_again_is_replaced
            files_are_listed_below_their_folder_only
            a_renamed_file_has_its_new_path_only
            a_rename_that_was_interrupted_is_completed
            a_deleted_file_is_gone_and_is_deleted_once_more
            a_file_that_does_not_exist_is_neither_read_nor_renamed
            paths_of_types_with_any_name_are_kept
        }
    };
    (@cases $files:expr; $($case:ident)+) => {
        $(#[test]
        fn $case() {
            let (files, _kept) = $files;
            $crate::archive_files::run(&files, $crate::archive_files::cases::$case);
        })+
    };
}

/// Runs one case to its end.
///
/// # Panics
/// When the case fails or is stuck.
pub fn run(files: &dyn ArchiveFiles, case: impl AsyncFn(&dyn ArchiveFiles)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let limit = Duration::from_secs(CASE_SECONDS_MAX);
        tokio::time::timeout(limit, case(files)).await.expect("the case ends in time");
    });
}

#[cfg(test)]
mod tests {
    use crate::archive::memory_files::MemoryFiles;

    crate::archive_files!((MemoryFiles::default(), ()));
}
