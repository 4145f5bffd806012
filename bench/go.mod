module github.com/redlatch/redlatch/bench

go 1.26

require github.com/redlatch/redlatch v0.0.0

replace github.com/redlatch/redlatch => ../
