//! The suite that every adapter must pass, as async functions over the ports
