//! Projections are made by the store and not by the server: what they leave of a document is what the mongod leaves of it.

use annals_core::Projection;
use annals_core::bson::{Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt;

use super::Set;
use super::queries::projection;
use crate::server::Databases;

const PROJECTIONS: usize = 400;

fn asked(projection: &Projection) -> Document {
    let all = |paths: &[String], wanted: i32| paths.iter().map(|path| (path.clone(), wanted.into())).collect();
    match projection {
        Projection::Whole => doc! {},
        Projection::Only(paths) => all(paths, 1),
        Projection::Without(paths) => all(paths, 0),
    }
}

#[tokio::test]
async fn projections_leave_what_mongodb_leaves() {
    let databases = Databases::new();
    let things = databases.database().await.collection::<RawDocumentBuf>("things");
    let mut set = Set::new(0);
    for document in &set.documents {
        things.insert_one(RawDocumentBuf::try_from(document).expect("a document")).await.expect("inserted");
    }
    let stored: Vec<_> = things.find(doc! {}).await.expect("found").try_collect().await.expect("read");
    let mut cut = 0;
    for _ in 0..PROJECTIONS {
        let wanted = super::made(&projection(), &mut set.runner).current();
        let left: Vec<_> = match things.find(doc! {}).projection(asked(&wanted)).await {
            Ok(found) => found.try_collect().await.expect("read"),
            Err(error) => panic!("{wanted:?}: {error}"),
        };
        for (document, due) in stored.iter().zip(left) {
            cut += usize::from(due != *document);
            assert_eq!(wanted.of(document), due, "{wanted:?} of {document:?}");
        }
    }
    assert!(cut > PROJECTIONS * 10, "only {cut} documents lose a field");
}
