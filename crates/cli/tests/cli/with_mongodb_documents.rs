//! The snippets of the guides that need a MongoDB. The name of this file leaves it out where there is no MongoDB: see CONTRIBUTING.md.

use mongodb::Client;

use crate::documents::check_with;
use crate::run::{folder, run};
use crate::with_mongodb_adopt::fill;
use crate::with_mongodb_serve::{Database, server};

fn url(database: &str) -> String {
    format!("mongodb://{}/{database}?directConnection=true", server())
}

#[test]
fn the_snippets_of_the_guide_to_mongodb_work_in_order_in_an_empty_folder() {
    let database = Database::new();
    // The guide starts MongoDB in a container; here it is the one of the tests.
    let here = |script: String| {
        assert!(script.contains("\ndocker compose up -d --wait "), "{script}");
        let script = script.replace("\ndocker compose up -d --wait ", "\n: ");
        script.replace("mongodb://127.0.0.1:27017/annals?replicaSet=rs0", &url(&database.0))
    };
    check_with("docs/mongodb.md", 1, here);
}

/// Writes a database as Wow leaves it: the commits of an aggregate, and nothing that only Annals has.
async fn fill_as_wow(database: &str) {
    let (here, place) = (folder(), url(database));
    run(here.path(), &["commit", "--aggregate", "order/o-1", "--type", "order_placed", "--store", &place]).ok();
    let client = Client::with_uri_str(&place).await.expect("a client");
    let database = client.database(database);
    for name in database.list_collection_names().await.expect("the collections") {
        if !name.ends_with("_event_stream") && name != "wow_database_metadata" {
            database.collection::<mongodb::bson::Document>(&name).drop().await.expect("dropped");
        }
    }
}

#[test]
fn the_snippets_of_the_guide_to_adoption_work_in_order_on_databases_of_wow_and_of_a_runtime() {
    let database = Database::new();
    let (shop, runtime) = (format!("{}shop", database.0), format!("{}runtime", database.0));
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(async {
        fill_as_wow(&shop).await;
        fill(&url(&runtime), &runtime).await;
    });
    let here = |script: String| {
        let script = script.replace("mongodb://127.0.0.1/shop?replicaSet=rs0", &url(&shop));
        script.replace("mongodb://127.0.0.1/runtime?replicaSet=rs0", &url(&runtime))
    };
    check_with("docs/adopt.md", 2, here);
}
