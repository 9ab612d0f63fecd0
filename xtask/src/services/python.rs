//! Python with public packages: the generators of clients for HTTP and for gRPC, the library that signs and verifies webhooks, the readers
//! of archived files and documents, and a server with the API of S3.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Running, Service};
use crate::command::{output, run};

/// The packages and their dependencies, each in the version that was tested.
const PACKAGES: [&str; 58] = [
    "openapi-python-client==0.29.1",
    "standardwebhooks==1.0.1",
    "duckdb==2.0.1",
    "pyarrow==25.0.1",
    "beanie==2.2.0",
    "moto==5.2.5",
    "grpcio==1.85.3",
    "grpcio-tools==1.85.1",
    "annotated-doc==0.0.7",
    "annotated-types==0.8.0",
    "anyio==4.16.0",
    "attrs==26.1.0",
    "blinker==1.9.0",
    "boto3==1.44.8",
    "botocore==1.44.8",
    "certifi==2026.10.19.post1",
    "cffi==2.1.1",
    "charset-normalizer==3.5.3",
    "click==8.5.1",
    "cryptography==50.0.2",
    "deprecated==1.3.1",
    "dnspython==2.9.2",
    "flask-cors==6.0.5",
    "flask==3.1.3",
    "h11==0.16.0",
    "httpcore==1.0.9",
    "httpx==0.28.1",
    "idna==3.20",
    "itsdangerous==2.2.0",
    "jinja2==3.1.6",
    "jmespath==1.1.0",
    "lazy-model==0.4.0",
    "markdown-it-py==4.3.0",
    "markupsafe==3.0.4",
    "mdurl==0.1.2",
    "protobuf==7.36.2",
    "py-partiql-parser==0.6.3",
    "pycparser==3.12",
    "pydantic-core==2.50.5",
    "pydantic==2.14.4",
    "pygments==2.21.0",
    "pymongo==4.20.1",
    "python-dateutil==4.0.0",
    "pyyaml==6.0.4",
    "requests==2.34.2",
    "responses==0.26.3",
    "rich==15.0.0",
    "ruamel.yaml==0.19.1",
    "ruff==0.17.6",
    "s3transfer==0.19.3",
    "shellingham==1.5.4",
    "typer==0.27.3",
    "typing-extensions==4.16.0",
    "typing-inspection==0.4.5",
    "urllib3==2.8.0",
    "werkzeug==3.1.9",
    "wrapt==2.5.2",
    "xmltodict==1.0.4",
];
/// Must change with the list.
const VERSION: &str = "4";

/// Python. Its program is the interpreter, and its place is the folder of the packages, which `PYTHONPATH` names.
pub const PYTHON: Service = Service {
    name: "python",
    place: "ANNALS_TEST_PYTHON_PACKAGES",
    program: "ANNALS_TEST_PYTHON",
    meant: "a Python 3.10 or later and a folder with the packages openapi-python-client, standardwebhooks, duckdb, pyarrow, beanie, moto and grpcio-tools",
    package: None,
    module: "with_python",
    runs: false,
    fetch: |cache| packages(cache).map(|packages| packages.interpreter),
    start: |cache, _| Ok(Box::new(packages(cache)?)),
};

/// The interpreter and its packages.
struct Packages {
    interpreter: PathBuf,
    folder: PathBuf,
}

impl Running for Packages {
    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Returns the packages. Fetches them unless they are in `cache`.
fn packages(cache: &Path) -> Result<Packages, String> {
    let says = "import sys; print(sys.executable); print('%d.%d' % sys.version_info[:2])";
    let said = output(Command::new("python3").args(["-c", says]))
        .map_err(|_| "there is no python3 here: install it (Debian: apt-get install python3-pip)".to_owned())?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut lines = said.lines();
    let (interpreter, version) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    // Some packages are compiled for one version of Python.
    let folder = cache.join(format!("python-{version}-packages-{VERSION}"));
    let packages = Packages { interpreter: interpreter.into(), folder };
    if !packages.folder.exists() {
        fetch(cache, &packages)?;
    }
    Ok(packages)
}

/// Installs into a separate folder, which requires neither a virtual environment nor permission to change the system's packages.
fn fetch(cache: &Path, packages: &Packages) -> Result<(), String> {
    output(Command::new(&packages.interpreter).args(["-m", "pip", "--version"])).map_err(|_| {
        "packages of Python are fetched by pip, and python3 has none here: install it (Debian: apt-get install python3-pip)"
            .to_owned()
    })?;
    // Under a temporary name until it is complete: two runs may fetch at once, and one may be interrupted.
    let part = cache.join(format!("python-packages.part-{}", std::process::id()));
    fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
    let mut install = Command::new(&packages.interpreter);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    install.args(["--prefer-binary", "--no-deps", "--target"]).arg(&part).args(PACKAGES);
    let installed = run(&mut install).and_then(|()| match fs::rename(&part, &packages.folder) {
        Err(error) if !packages.folder.exists() => Err(format!("{}: {error}", packages.folder.display())),
        _ => Ok(()),
    });
    let _ = fs::remove_dir_all(&part);
    installed
}
