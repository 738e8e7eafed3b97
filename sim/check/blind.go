package check

// blind are checks that do not look. The zoo builds the simulator with some, to
// see that others would have seen a mutant too.
var blind = []string{}
