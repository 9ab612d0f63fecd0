//! The messages are those of the protocol.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_messages_that_are_checked_in_are_those_of_the_protocol() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let protocol = here.join("../../proto");
    let files = protox::compile([protocol.join("annals/v1/annals.proto")], [&protocol]).expect("a protocol");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc");
    fs::create_dir_all(&folder).expect("a folder");
    let mut config = prost_build::Config::new();
    config.bytes(["."]).disable_comments(["."]).out_dir(&folder).compile_fds(files).expect("generated");
    let generated = folder.join("annals.v1.rs");
    let checked_in = here.join("src/grpc/generated.rs");
    if std::env::var_os("ANNALS_WRITE_MESSAGES").is_some() {
        fs::copy(&generated, &checked_in).expect("copied");
        return;
    }
    let read = |path: &Path| fs::read_to_string(path).expect("text");
    let same = read(&generated) == read(&checked_in);
    assert!(
        same,
        "run ANNALS_WRITE_MESSAGES=1 cargo test -p annals-server --test server messages to write src/grpc/generated.rs"
    );
}
