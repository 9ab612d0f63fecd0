//! Words, searches, and the texts that an index covers. The MongoDB adapter's tests compare them with a server.

use bson::{Bson, RawDocumentBuf, doc};

use super::words::words;
use super::*;
use crate::Index;

fn words_of(text: &str) -> Vec<String> {
    words(text).collect()
}

fn finds(search: &str, text: &str) -> bool {
    let document = RawDocumentBuf::try_from(&doc! { "t": text }).expect("a document");
    TextSearch::new(search).finds(&document, &TextFields::new(["t"]))
}

#[test]
fn a_text_is_its_words_without_case_and_accents() {
    assert_eq!(words_of("Der Bär, das CAFÉ -- l'été…"), ["der", "bar", "das", "cafe", "l", "ete"]);
    assert_eq!(words_of("snake_case x^y 1.5 ΣΟΦΟΣ Straße"), ["snake_case", "x", "y", "1", "5", "σοφοσ", "straße"]);
    // An accent is ignored, whether composed or not; alone it is the empty word.
    assert_eq!(words_of("e\u{301}te\u{301} \u{301}"), ["ete", ""]);
    assert_eq!(words_of("日本語、テキスト"), ["日本語", "テキスト"]);
    assert_eq!(words_of(" ,.- "), [""; 0]);
}

#[test]
fn a_search_is_words_phrases_and_what_is_unwanted() {
    assert!(finds("milk coffee", "Coffee, black"));
    assert!(!finds("milk", "milkman"));
    assert!(finds("\"fresh milk\"", "FRESH  milk and fresh milk"));
    assert!(!finds("\"fresh milk\"", "fresh  milk"));
    // A phrase is a substring of the text, but one of its words must be a word of the text.
    assert!(finds("\"resh milk\"", "fresh milk"));
    assert!(!finds("\"resh mil\"", "fresh milk"));
    assert!(finds("tea \"milk\"", "milk"));
    assert!(!finds("coffee -sugar", "coffee with sugar"));
    assert!(finds("coffee -\"brown sugar\"", "coffee with sugar, brown"));
    assert!(!finds("coffee -\"brown sugar\"", "coffee with Brown Sugar"));
    assert!(!finds("coffee -brown-sugar", "coffee with sugar"));
    assert!(finds("well-known", "known"));
    assert!(finds("coffee \"sugar", "sugar"));
    assert!(!finds("-sugar", "coffee"));
    assert!(!finds("", "coffee"));
}

#[test]
fn one_word_is_enough_unless_a_phrase_is_required_or_something_is_excluded() {
    let enough = |search| TextSearch::new(search).is_one_word_enough();
    assert!(enough("coffee") && enough("coffee well-known") && enough("coffee \"sugar"));
    assert!(!enough("coffee \"brown sugar\"") && !enough("coffee -sugar") && !enough("coffee -\"brown sugar\""));
}

#[test]
fn texts_are_found_through_documents_and_one_array() {
    let texts = |paths: &[&str], value: Bson| {
        let document = RawDocumentBuf::try_from(&doc! { "a": value }).expect("a document");
        let texts = TextFields::new(paths.iter().copied());
        texts.texts(&document).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(texts(&["a"], "w".into()), ["w"]);
    assert_eq!(texts(&["a"], "w\0x".into()), ["w"]);
    assert_eq!(texts(&["a"], Bson::Array(vec!["v".into(), 5.into(), "w".into()])), ["v", "w"]);
    assert_eq!(texts(&["a.b"], Bson::Array(vec![doc! { "b": ["w"] }.into(), "v".into()])), ["w"]);
    for hidden in [Bson::Array(vec![Bson::Array(vec!["w".into()])]), doc! { "b": "w" }.into(), Bson::Symbol("w".into())]
    {
        assert_eq!(texts(&["a"], hidden), [""; 0]);
    }
    let through = || Bson::Array(vec![doc! { "b": "w" }.into()]);
    assert_eq!(texts(&["a", "a.b"], through()), ["w"]);
    assert_eq!(texts(&["a-x", "a.b"], through()), [""; 0]);
    assert_eq!(texts(&["a-x", "a.b"], doc! { "b": "w" }.into()), ["w"]);
}

#[test]
fn a_document_has_an_entry_for_each_different_word() {
    let index = Index::text(["t", "u"]);
    let entries = |document| text_entries(&index, &RawDocumentBuf::try_from(&document).expect("a document"));
    let due = ["a", "b"].map(text_entry).into_iter().collect();
    assert_eq!(entries(doc! { "t": "A b a", "u": ["á"], "v": "c" }), Ok(due));
    let many = |count: usize| (0..count).map(|n| format!("{n:x} ")).collect::<String>();
    assert_eq!(entries(doc! { "t": many(40_000) }).expect("they fit").len(), 40_000);
    assert_eq!(entries(doc! { "t": many(100_000) }).expect_err("too many").code, crate::Code::InvalidRecord);
    let shared = |length| {
        let (word, longer) = ("a".repeat(length), "a".repeat(length) + &"\u{10348}".repeat(9));
        (has_own_text_entry(&word), text_entry(&word) == text_entry(&longer))
    };
    assert_eq!((shared(252), shared(253), shared(256)), ((true, false), (false, true), (false, true)));
    let long = "ä".repeat(100_000);
    assert_eq!(entries(doc! { "t": long }).expect("it is one word").len(), 1);
}
