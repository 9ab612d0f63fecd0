use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

/// The rules that a source file breaks, with their lines.
fn broken(path: &str, text: &str) -> Vec<(&'static str, usize)> {
    rust::faults(&file(path, text)).iter().map(|fault| (fault.rule, fault.line)).collect()
}

#[test]
fn banned_calls_are_found_in_code_and_nowhere_else() {
    let unfinished = concat!("fn f() {\n    to", "do!()\n}\n");
    assert_eq!(broken("src/a.rs", unfinished), [("unfinished", 2)]);
    let ignored = concat!("#[test]\n#[ig", "nore = \"slow\"]\nfn f() {}\n");
    assert_eq!(broken("src/a.rs", ignored), [("ignore", 2)]);
    for quoted in ["// todo!()", "/* /* dbg!() */ dbg!() */", "let a = \"\\\"todo!()\";", "let a = r#\"\"todo!()\"#;"] {
        assert_eq!(broken("src/a.rs", &format!("{quoted}\n")), [], "{quoted}");
    }
    for code in
        ["let a = '\"'; dbg!(a);", "let a: &'static str = b; dbg!(a);", "let a = b'\\''; dbg!(a);", "r#type; dbg!(a)"]
    {
        assert_eq!(broken("src/a.rs", &format!("{code}\n")), [("debug", 1)], "{code}");
    }
    assert_eq!(broken("src/a.rs", "my_dbg!(1);\n"), []);
}

#[test]
fn a_test_must_not_sleep_and_a_product_may() {
    let sleep = "async fn f() {\n    tokio::time::sleep(x).await;\n}\n";
    assert_eq!(broken("src/a.rs", sleep), []);
    assert_eq!(broken("tests/a.rs", sleep), [("pause", 2)]);
    assert_eq!(broken("src/a/tests.rs", sleep), [("pause", 2)]);
    let inline = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{sleep}}}\n");
    assert_eq!(broken("src/a.rs", &inline), [("pause", 5)]);
    let with_reason = sleep.replace("    tokio", "    // tidy: allow(pause) between two looks\n    tokio");
    assert_eq!(broken("tests/a.rs", &with_reason), []);
    let without_reason = sleep.replace("    tokio", "    // tidy: allow(pause) \n    tokio");
    assert_eq!(broken("tests/a.rs", &without_reason), [("pause", 3)]);
}

#[test]
fn a_product_takes_the_time_where_it_is_read_for_all() {
    for text in [
        "use tokio::time::{Duration, sleep};\n",
        "use tokio::time::Instant;\n",
        "fn f() { tokio::time::interval(x) }\n",
    ] {
        assert_eq!(broken("crates/mongodb/src/a.rs", text), [("time", 1)], "{text}");
        for elsewhere in ["crates/system/src/a.rs", "crates/bench/src/a.rs", "examples/orders/src/a.rs"] {
            assert_eq!(broken(elsewhere, text), [], "{text}");
        }
    }
    assert_eq!(broken("crates/mongodb/src/a.rs", "use tokio::time::{Sleep, timeout};\n"), []);
    let measured = "#[cfg(test)]\nmod tests {\n    use tokio::time::Instant;\n}\n";
    assert_eq!(broken("crates/mongodb/src/a.rs", measured), []);
}

#[test]
fn a_matches_whose_answer_is_lost_is_found() {
    assert_eq!(broken("src/a.rs", "fn f() {\n    matches!(a, B { .. });\n}\n"), [("matches", 2)]);
    assert_eq!(broken("src/a.rs", "fn f() {\n    g();\n    matches!(a, B(_));\n    h();\n}\n"), [("matches", 3)]);
    assert_eq!(broken("src/a.rs", "fn f() -> bool {\n    matches!(a, B)\n}\n"), []);
    assert_eq!(broken("src/a.rs", "fn f() {\n    assert!(matches!(a, B));\n    let x = matches!(a, B);\n}\n"), []);
    assert_eq!(broken("src/a.rs", "fn f() -> bool {\n    matches!(a, B) && c;\n}\n"), []);
}

#[test]
fn long_files_lines_and_functions_are_found() {
    assert_eq!(broken("src/a.rs", &"//\n".repeat(600)), []);
    assert_eq!(broken("src/a.rs", &"//\n".repeat(601)), [("length", 601)]);
    assert_eq!(broken("src/a.rs", &format!("// {}\n", "é".repeat(137))), []);
    assert_eq!(broken("src/a.rs", &format!("// {}\n", "é".repeat(138))), [("columns", 1)]);
    assert_eq!(broken("src/a.rs", &format!("let a = \"{}\";\n", "x".repeat(200))), [], "text may be long");
    let function = |lines: usize| format!("\nfn f(a: [u8; 2]) {{\n{}}}\n", "    g();\n".repeat(lines - 2));
    assert_eq!(broken("src/a.rs", &function(100)), []);
    assert_eq!(broken("src/a.rs", &function(101)), [("function", 2)]);
}

#[test]
fn a_file_that_no_module_names_is_dead() {
    let dead = |files: &[File]| rust::dead_files(files).into_iter().map(|fault| fault.path).collect::<Vec<_>>();
    let root = file("c/src/lib.rs", "mod a;\n// mod b;\n");
    let files = [root, file("c/src/a.rs", "mod x;\n"), file("c/src/b.rs", ""), file("c/src/a/x.rs", "")];
    assert_eq!(dead(&files), ["c/src/b.rs"]);
    let tests = [file("c/tests/one.rs", ""), file("c/tests/two/main.rs", "mod a;\n"), file("c/tests/two/a.rs", "")];
    assert_eq!(dead(&tests), Vec::<String>::new());
    assert_eq!(dead(&[file("c/tests/two/b.rs", "")]), ["c/tests/two/b.rs"]);
}

#[test]
fn links_lead_to_files_and_headings() {
    let readme =
        file("README.md", "[a](docs/a.md#the-two-words) [b](docs/b.md) [w](https://x) [d](docs)\n```\n[c](no)\n```\n");
    let files = [readme, file("docs/a.md", "# The `two` words!\n[back](../README.md)[self](#nothing)\n")];
    let paths = BTreeSet::from(["README.md", "docs/a.md"]);
    let faults: Vec<_> =
        documents::link_faults(&files, &paths).into_iter().map(|f| (f.path, f.line, f.message)).collect();
    let expected = [
        ("README.md".to_owned(), 1, "leads to docs/b.md, which does not exist".to_owned()),
        ("docs/a.md".to_owned(), 2, "docs/a.md has no heading #nothing".to_owned()),
    ];
    assert_eq!(faults, expected);
}

#[test]
fn names_white_space_and_manifests_are_judged() {
    assert!(name_fault("crates/core/src/event_log.rs").is_none());
    assert!(name_fault("crates/core/src/utils.rs").is_some());
    assert!(name_fault("crates/core/tests/common/mod.rs").is_some());
    assert!(name_fault("crates/core/src/lock_manager.rs").is_some());
    assert_eq!(whitespace_faults(&file("a.md", "a \nb\t\nc\n")).len(), 2);
    assert_eq!(whitespace_faults(&file("a.md", "a")).len(), 1);
    assert_eq!(whitespace_faults(&file("a.md", "a\n\n")).len(), 1);
    assert_eq!(whitespace_faults(&file("a.md", "a\r\n")).len(), 1);
    let paths = BTreeSet::from(["c/Cargo.toml", "c/src/lib.rs"]);
    assert!(documents::manifest_fault(&file("c/Cargo.toml", "[lints]\nworkspace = true\n"), &paths).is_none());
    assert!(documents::manifest_fault(&file("c/Cargo.toml", "[package]\n"), &paths).is_some());
    assert!(documents::manifest_fault(&file("d/Cargo.toml", "[lints]\nworkspace = true\n"), &paths).is_some());
}

#[test]
fn paths_that_documents_mention_exist() {
    let text = "`crates/a/src/b.rs` `crates/a/` `crates/a/src/c.rs` `docs/*.md` `a/b` `crates/a/src`\n";
    let paths = BTreeSet::from(["README.md", "crates/a/src/b.rs"]);
    let faults = documents::mention_faults(&[file("README.md", text)], &paths);
    assert_eq!(
        faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>(),
        ["crates/a/src/c.rs does not exist"]
    );
}

#[test]
fn the_example_of_the_readme_is_the_compiled_one() {
    let crate_text = "//! Words.\n//!\n//! ```\n//! a();\n//!\n//! # hidden\n//! #\n//! b();\n//! ```\n";
    let fault = |readme: &str| {
        let files = [file("README.md", readme), file("crates/annals/src/lib.rs", crate_text)];
        documents::example_fault(&files)
    };
    assert_eq!(fault("```sh\nx\n```\n```rust\na();\n\nb();\n```\n"), None);
    assert!(fault("```rust\na();\nb();\n```\n").is_some());
    assert!(fault("no example\n").is_some());
}

#[test]
fn phrases_of_translated_english_are_found_in_guides_and_nowhere_else() {
    let text = "It goes on.\nAll is well.\n```sh\ngoes on\n```\nWhoever reads, forgoes one.\n";
    let lines = |path: &str| language::faults(&file(path, text)).iter().map(|fault| fault.line).collect::<Vec<_>>();
    assert_eq!(lines("README.md"), [1, 6]);
    assert_eq!(lines("docs/http.md"), [1, 6]);
    for other in ["CHANGELOG.md", "docs/decisions/0001.md", "src/a.rs", "examples/a/README.md"] {
        assert_eq!(lines(other), [0; 0], "{other}");
    }
}

#[test]
fn the_handbook_has_every_page_once_under_its_title() {
    let found = |summary: &str| {
        let files = [
            file("docs/SUMMARY.md", summary),
            file("docs/a.md", "# The page a\n"),
            file("docs/decisions/0001-b.md", "# 0001: b\n"),
            file("README.md", "# Not a page\n"),
        ];
        documents::summary_faults(&files).into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    let (a, b) = ("- [The page a](a.md)\n", "  - [0001: b](decisions/0001-b.md)\n");
    assert_eq!(found(&format!("{a}{b}")), [""; 0]);
    assert!(found(a)[0].contains("add `- [0001: b](decisions/0001-b.md)`"));
    assert!(found(&format!("{a}{a}{b}"))[0].contains("listed twice"));
    assert!(found(&format!("- [Another name](a.md)\n{b}"))[0].contains("The page a"));
    assert_eq!(documents::summary_faults(&[file("docs/a.md", "# A\n")]).len(), 1);
}
