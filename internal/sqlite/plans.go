// Package sqlite sets up SQLite for the whole program: a statement keeps its plan.
//
// Where a parameter stands for a value that the planner would like to know (in
// column = ?1 it likes to know of 0 and 1), SQLite 3.53 makes a plan anew each time
// the statement is bound again. That costs a read by key more than all else, and a
// plan would hang on who asked last. SQLITE_DBCONFIG_ENABLE_QPSG, the query planner
// stability guarantee, ends it.
package sqlite

/*
#cgo linux LDFLAGS: -Wl,--unresolved-symbols=ignore-in-object-files
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup

typedef struct sqlite3 sqlite3;
extern int sqlite3_auto_extension(void (*entry)(void));
extern int sqlite3_db_config(sqlite3 *db, int op, ...);

// SQLITE_DBCONFIG_ENABLE_QPSG of sqlite3.h, which the driver keeps to itself.
enum { enable_qpsg = 1007 };

static int keep_plans(sqlite3 *db, char **err, const void *api) {
	return sqlite3_db_config(db, enable_qpsg, 1, (int *)0);
}

static int keep_plans_everywhere(void) {
	return sqlite3_auto_extension((void (*)(void))keep_plans);
}
*/
import "C"

import (
	"fmt"

	_ "github.com/mattn/go-sqlite3" // whose SQLite this speaks to
)

func init() {
	if rc := C.keep_plans_everywhere(); rc != 0 {
		panic(fmt.Sprintf("SQLite takes no settings for its connections: code %d", rc))
	}
}
